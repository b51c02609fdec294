//! The wire on byte slices: frames, batch bodies, coordinates, reasons. No I/O.

use crate::sha256::Sha256;

/// The wire version.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HEADER_LEN: usize = 16;
/// Bytes of a frame around its payload.
pub const OVERHEAD: usize = HEADER_LEN + 4;
/// The largest payload.
pub const MAX_PAYLOAD: usize = 16 << 20;
/// The most records of a batch.
pub const MAX_BATCH_RECORDS: usize = 2048;
/// The longest segment address.
pub const MAX_SEGMENT: usize = 255;
const COORDINATE_FIXED: usize = 43;
const BATCH_PREFIX: usize = 3;

/// How safe a record has to be before it is acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage.
    Durable = 0x01,
    /// With the operating system: it survives the death of the daemon, not of the machine.
    Buffered = 0x03,
}

/// The types of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Type {
    Push = 0x01,
    Ack = 0x02,
    Nack = 0x03,
    HealthCheck = 0x04,
    HealthCheckResponse = 0x05,
    PushTracked = 0x06,
    AckTracked = 0x07,
    PushBatch = 0x08,
    AckBatch = 0x09,
}

impl Type {
    fn from_byte(b: u8) -> Option<Type> {
        use Type::*;
        [Push, Ack, Nack, HealthCheck, HealthCheckResponse, PushTracked, AckTracked, PushBatch, AckBatch].into_iter().find(|t| *t as u8 == b)
    }

    /// The largest payload of a reply of this type to a request of type `asked`; `None` where it is no reply to it.
    pub fn reply_cap(self, asked: Type) -> Option<usize> {
        match self {
            Type::Nack => Some(2),
            t if t as u8 != asked as u8 + 1 => None,
            Type::AckTracked => Some(COORDINATE_FIXED + MAX_SEGMENT),
            Type::AckBatch => Some(BATCH_PREFIX + MAX_BATCH_RECORDS / 8),
            _ => Some(0),
        }
    }
}

/// Why bytes do not decode; the names are those of the conformance vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verdict {
    TruncatedFrame,
    TrailingBytes,
    BadMagic,
    /// With the version that the peer speaks.
    VersionMismatch(u8),
    HeaderCrcMismatch,
    UnknownMessageType,
    UnknownDurability,
    ReservedFlagsSet,
    PayloadTooLarge,
    PayloadCrcMismatch,
    Truncated,
    UnsupportedVersion,
    EmptyBatch,
    TooManyRecords,
    TruncatedRecord,
    EmptyRecord,
    RecordTooLarge,
    LengthMismatch,
    PaddingNotZero,
    SegmentTooLong,
    SegmentNotUtf8,
}

impl Verdict {
    /// The name of the verdict.
    pub fn name(self) -> String {
        match self {
            Verdict::VersionMismatch(_) => "VersionMismatch".into(),
            v => format!("{v:?}"),
        }
    }
}

/// The InternalError reason: the one after which a record may be pushed again on the same connection.
pub const INTERNAL_ERROR: u8 = 0x06;
/// The VersionMismatch reason, the one with a second byte.
pub const VERSION_MISMATCH: u8 = 0x02;

/// The name of a Nack reason; "Unassigned" for all bytes that have none.
pub fn reason_name(reason: u8) -> &'static str {
    match reason {
        0x01 => "BadMagic",
        0x02 => "VersionMismatch",
        0x03 => "BadHeaderCrc",
        0x04 => "PayloadTooLarge",
        0x05 => "BadPayloadCrc",
        0x06 => "InternalError",
        0x07 => "EmptyPayload",
        0x08 => "UnknownMessage",
        0x09 => "ReservedFlagsSet",
        0x0b => "BadBatchFraming",
        _ => "Unassigned",
    }
}

/// A header that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type.
    pub kind: Type,
    /// The tier; of a reply it means nothing.
    pub durability: Durability,
    /// Bytes of the payload, at most [`MAX_PAYLOAD`].
    pub payload_len: usize,
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Returns the bytes of a header.
pub fn header(kind: Type, d: Durability, payload_len: usize) -> [u8; HEADER_LEN] {
    let mut b = [0; HEADER_LEN];
    b[..4].copy_from_slice(b"WEIR");
    b[4] = VERSION;
    b[5] = kind as u8;
    b[6] = d as u8;
    b[8..12].copy_from_slice(&(payload_len as u32).to_le_bytes());
    let crc = crc32fast::hash(&b[..12]);
    b[12..].copy_from_slice(&crc.to_le_bytes());
    b
}

/// Reads a header, with every check up to the cap of the payload length, in the order of the specification.
pub fn parse_header(b: &[u8; HEADER_LEN]) -> Result<Header, Verdict> {
    if &b[..4] != b"WEIR" {
        return Err(Verdict::BadMagic);
    }
    if b[4] != VERSION {
        return Err(Verdict::VersionMismatch(b[4]));
    }
    if u32_at(b, 12) != crc32fast::hash(&b[..12]) {
        return Err(Verdict::HeaderCrcMismatch);
    }
    let kind = Type::from_byte(b[5]).ok_or(Verdict::UnknownMessageType)?;
    let durability = match b[6] {
        0x01 | 0x02 => Durability::Durable, // 0x02 is retired
        0x03 => Durability::Buffered,
        _ => return Err(Verdict::UnknownDurability),
    };
    if b[7] != 0 {
        return Err(Verdict::ReservedFlagsSet);
    }
    let payload_len = u32_at(b, 8) as usize;
    if payload_len > MAX_PAYLOAD {
        return Err(Verdict::PayloadTooLarge);
    }
    Ok(Header { kind, durability, payload_len })
}

/// Appends a whole frame.
pub fn append_frame(out: &mut Vec<u8>, kind: Type, d: Durability, payload: &[u8]) {
    out.extend_from_slice(&header(kind, d, payload.len()));
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
}

/// Reads a buffer that must be exactly one frame.
pub fn parse_frame(b: &[u8]) -> Result<(Header, &[u8]), Verdict> {
    let head = b.first_chunk().ok_or(Verdict::TruncatedFrame)?;
    let h = parse_header(head)?;
    match b.len().cmp(&(OVERHEAD + h.payload_len)) {
        std::cmp::Ordering::Less => return Err(Verdict::TruncatedFrame),
        std::cmp::Ordering::Greater => return Err(Verdict::TrailingBytes),
        std::cmp::Ordering::Equal => {}
    }
    let payload = &b[HEADER_LEN..HEADER_LEN + h.payload_len];
    check_crc(payload, &b[HEADER_LEN + h.payload_len..])?;
    Ok((h, payload))
}

/// Checks a payload against the four bytes behind it.
pub fn check_crc(payload: &[u8], crc: &[u8]) -> Result<(), Verdict> {
    if u32_at(crc, 0) != crc32fast::hash(payload) {
        return Err(Verdict::PayloadCrcMismatch);
    }
    Ok(())
}

/// Appends the body of a PushBatch.
pub fn append_batch<T: AsRef<[u8]>>(out: &mut Vec<u8>, records: &[T]) {
    out.push(1);
    out.extend_from_slice(&(records.len() as u16).to_le_bytes());
    for r in records {
        out.extend_from_slice(&(r.as_ref().len() as u32).to_le_bytes());
        out.extend_from_slice(r.as_ref());
    }
}

/// Reads the body of a PushBatch.
pub fn parse_batch(body: &[u8]) -> Result<Vec<&[u8]>, Verdict> {
    let (prefix, mut rest) = body.split_at_checked(BATCH_PREFIX).ok_or(Verdict::Truncated)?;
    if prefix[0] != 1 {
        return Err(Verdict::UnsupportedVersion);
    }
    let count = u16::from_le_bytes([prefix[1], prefix[2]]) as usize;
    if count == 0 {
        return Err(Verdict::EmptyBatch);
    }
    if count > MAX_BATCH_RECORDS {
        return Err(Verdict::TooManyRecords);
    }
    let mut records = Vec::new();
    for _ in 0..count {
        let (len, after) = rest.split_at_checked(4).ok_or(Verdict::TruncatedRecord)?;
        let len = u32_at(len, 0) as usize;
        if len == 0 {
            return Err(Verdict::EmptyRecord);
        }
        if len > MAX_PAYLOAD {
            return Err(Verdict::RecordTooLarge);
        }
        let (record, after) = after.split_at_checked(len).ok_or(Verdict::TruncatedRecord)?;
        records.push(record);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Verdict::LengthMismatch);
    }
    Ok(records)
}

/// Appends an AckBatch payload.
pub fn append_ack_batch(out: &mut Vec<u8>, acked: &[bool]) {
    out.push(1);
    out.extend_from_slice(&(acked.len() as u16).to_le_bytes());
    for bits in acked.chunks(8) {
        out.push(bits.iter().enumerate().fold(0, |byte, (i, set)| byte | u8::from(*set) << i));
    }
}

/// Reads an AckBatch payload against the number of records sent.
pub fn parse_ack_batch(b: &[u8], sent: usize) -> Result<Vec<bool>, Verdict> {
    let (prefix, bits) = b.split_at_checked(BATCH_PREFIX).ok_or(Verdict::Truncated)?;
    if prefix[0] != 1 {
        return Err(Verdict::UnsupportedVersion);
    }
    let count = u16::from_le_bytes([prefix[1], prefix[2]]) as usize;
    if count == 0 {
        return Err(Verdict::EmptyBatch);
    }
    if count != sent || bits.len() != count.div_ceil(8) {
        return Err(Verdict::LengthMismatch);
    }
    if count % 8 != 0 && bits[bits.len() - 1] >> (count % 8) != 0 {
        return Err(Verdict::PaddingNotZero);
    }
    Ok((0..count).map(|i| bits[i / 8] >> (i % 8) & 1 == 1).collect())
}

/// Where a record landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinate {
    /// The address of the segment: opaque and stable.
    pub segment: String,
    /// The ordinal of the record in it, from 1.
    pub index: u64,
    /// The key that the sink gets with the record.
    pub id: [u8; 32],
}

/// Appends an AckTracked payload. A segment is at most [`MAX_SEGMENT`] bytes long.
pub fn append_coordinate(out: &mut Vec<u8>, c: &Coordinate) {
    out.push(1);
    out.extend_from_slice(&c.index.to_le_bytes());
    out.extend_from_slice(&c.id);
    out.extend_from_slice(&(c.segment.len() as u16).to_le_bytes());
    out.extend_from_slice(c.segment.as_bytes());
}

/// Reads an AckTracked payload.
pub fn parse_coordinate(b: &[u8]) -> Result<Coordinate, Verdict> {
    if b.len() < COORDINATE_FIXED {
        return Err(Verdict::Truncated);
    }
    if b[0] != 1 {
        return Err(Verdict::UnsupportedVersion);
    }
    let len = u16::from_le_bytes([b[41], b[42]]) as usize;
    if len > MAX_SEGMENT {
        return Err(Verdict::SegmentTooLong);
    }
    if b.len() != COORDINATE_FIXED + len {
        return Err(Verdict::LengthMismatch);
    }
    let segment = std::str::from_utf8(&b[COORDINATE_FIXED..]).map_err(|_| Verdict::SegmentNotUtf8)?;
    let mut index = [0; 8];
    index.copy_from_slice(&b[1..9]);
    let mut id = [0; 32];
    id.copy_from_slice(&b[9..41]);
    Ok(Coordinate { segment: segment.into(), index: u64::from_le_bytes(index), id })
}

/// Reads a Nack payload: the reason, and the daemon's version with VersionMismatch.
pub fn parse_nack(b: &[u8]) -> Result<(u8, Option<u8>), Verdict> {
    match *b {
        [] => Err(Verdict::Truncated),
        [VERSION_MISMATCH, version] => Ok((VERSION_MISMATCH, Some(version))),
        [reason] if reason != VERSION_MISMATCH => Ok((reason, None)),
        _ => Err(Verdict::LengthMismatch),
    }
}

/// Computes the id of a record: SHA-256 over its place and its bytes.
pub fn record_id(segment: &str, index: u64, payload: &[u8]) -> [u8; 32] {
    let mut h = Sha256::new();
    h.update(&(segment.len() as u64).to_le_bytes());
    h.update(segment.as_bytes());
    h.update(&index.to_le_bytes());
    h.update(&(payload.len() as u64).to_le_bytes());
    h.update(payload);
    h.finish()
}
