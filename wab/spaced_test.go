package wab

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

// slowFS is a disk whose syncs take their time.
type slowFS struct {
	vfs.FS
	took time.Duration
}

func (s slowFS) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	return slowFile{f, s.took}, err
}

type slowFile struct {
	vfs.File
	took time.Duration
}

func (f slowFile) SyncData() error {
	<-time.After(f.took)
	return f.File.SyncData()
}

// TestBufferedRecordsAreSyncedAtIntervals: records that go on coming while they are synced do not make the background sync without a pause.
func TestBufferedRecordsAreSyncedAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open("", Options{FS: slowFS{vfstest.NewDisk(), 5 * time.Millisecond}, SegmentBytes: 1 << 20, MinFreeBytes: -1, SyncInterval: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := l.Shards()[0]
		const records = 2000
		for range records {
			ticket, err := s.Append(record.Buffered, []byte("x"))
			if err == nil {
				err = ticket.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Millisecond)
		}
		syncs := s.Stats().Syncs
		if want := uint64(records / 200); syncs < want/2 || syncs > 2*want {
			t.Errorf("%d syncs in 2 s, want about %d", syncs, want)
		}
	})
}
