package wire

const cursorReportID = 0

// MaxRecordBytes is the longest record of a cursor stream.
const MaxRecordBytes = 2 * maxVarintBytes

// Record says how far a level has come: an absolute offset into the payload of the transfer that the report is about.
type Record struct {
	Level  Level
	Offset uint64
}

// AppendCursor appends the head frame of a cursor stream, behind which records follow. maxHeaderBytes is what the peer allows.
func AppendCursor(b []byte, reportID, maxHeaderBytes uint64) ([]byte, error) {
	b, start := beginFrame(b, KindCursor)
	w := beginMap(b)
	w.uint(cursorReportID, reportID)
	b, err := w.end()
	if err != nil {
		return nil, err
	}
	return endFrame(b, start, maxHeaderBytes)
}

// ParseCursor reads a header that a preamble announced as CURSOR, and returns the id of the report.
func ParseCursor(header []byte) (reportID uint64, err error) {
	r := reader{header}
	m, err := r.pairs(ErrNotAMap)
	if err != nil {
		return 0, err
	}
	named := false
	for {
		key, ok, err := m.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if key == cursorReportID {
			reportID, err = r.uint()
			named = true
		} else {
			err = r.skip()
		}
		if err != nil {
			return 0, err
		}
	}
	if !named {
		return 0, ErrMissingKey
	}
	return reportID, r.end()
}

// AppendRecord appends a record. It fails with ErrValue for a level that is not defined and with ErrRange for numbers above MaxVarint.
func AppendRecord(b []byte, r Record) ([]byte, error) {
	if !r.Level.Defined() {
		return nil, ErrValue
	}
	if uint64(r.Level) > MaxVarint || r.Offset > MaxVarint {
		return nil, ErrRange
	}
	return appendVarint(appendVarint(b, uint64(r.Level)), r.Offset), nil
}

// ParseRecord reads the record at the start of b and returns it with its length, at most MaxRecordBytes. It fails with ErrIncomplete, which at the
// end of the stream is a violation, or ErrValue.
func ParseRecord(b []byte) (r Record, n int, err error) {
	level, l, err := ParseVarint(b)
	if err != nil {
		return Record{}, 0, err
	}
	if !Level(level).Defined() {
		return Record{}, 0, ErrValue
	}
	offset, o, err := ParseVarint(b[l:])
	if err != nil {
		return Record{}, 0, err
	}
	return Record{Level: Level(level), Offset: offset}, l + o, nil
}
