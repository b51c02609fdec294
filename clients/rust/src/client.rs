use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::codec::{self, Coordinate, Durability, Header, Type, HEADER_LEN, MAX_BATCH_RECORDS, MAX_PAYLOAD};
use crate::error::Error;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The daemon's socket: `WEIR_SOCKET` of the environment, or `weir-data/weir.sock`.
pub fn default_path() -> PathBuf {
    match std::env::var_os("WEIR_SOCKET") {
        Some(p) if !p.is_empty() => p.into(),
        _ => "weir-data/weir.sock".into(),
    }
}

/// Sends one frame at a time over one connection, which it makes when it is needed and drops after anything that leaves doubt.
pub struct Client {
    path: PathBuf,
    timeout: Duration,
    stream: Option<UnixStream>,
    buf: Vec<u8>,
}

pub(crate) fn check_record(payload: &[u8]) -> Result<(), Error> {
    if payload.is_empty() {
        return Err(Error::Invalid("a record has at least one byte".into()));
    }
    if payload.len() > MAX_PAYLOAD {
        return Err(Error::Invalid(format!("a record of {} bytes: {MAX_PAYLOAD} are the most", payload.len())));
    }
    Ok(())
}

/// Judges the header of a reply to `asked` before anything behind it is read.
pub(crate) fn check_reply(head: &[u8; HEADER_LEN], asked: Type) -> Result<Header, Error> {
    let h = codec::parse_header(head).map_err(|v| Error::verdict("the reply", v))?;
    match h.kind.reply_cap(asked) {
        Some(cap) if h.payload_len <= cap => Ok(h),
        _ => Err(Error::protocol(format!("a {:?} of {} bytes does not answer a {asked:?}", h.kind, h.payload_len))),
    }
}

/// Turns the payload of a Nack into the error that it means.
pub(crate) fn nacked(payload: &[u8]) -> Error {
    match codec::parse_nack(payload) {
        Ok((codec::INTERNAL_ERROR, _)) => Error::Transient,
        Ok((reason, daemon_version)) => Error::Refused { reason, daemon_version },
        Err(v) => Error::verdict("a Nack", v),
    }
}

pub(crate) fn connect(path: &PathBuf) -> Result<UnixStream, Error> {
    UnixStream::connect(path).map_err(|e| Error::io(&format!("connect to {}", path.display()), e))
}

impl Client {
    /// A client of the daemon at `path`. It connects with its first call.
    pub fn new(path: impl Into<PathBuf>) -> Client {
        Client { path: path.into(), timeout: DEFAULT_TIMEOUT, stream: None, buf: Vec::new() }
    }

    /// Bounds each call; 30 seconds by default.
    pub fn with_timeout(mut self, timeout: Duration) -> Client {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sends one record of 1 byte to 16 MiB and waits until it is as safe as `d` asks for.
    pub fn push(&mut self, d: Durability, payload: &[u8]) -> Result<(), Error> {
        check_record(payload)?;
        self.ask(Type::Push, d, |out| out.extend_from_slice(payload)).map(drop)
    }

    /// Is [`Client::push`], and returns where the record landed. The id in the coordinate was checked against the payload.
    pub fn push_tracked(&mut self, d: Durability, payload: &[u8]) -> Result<Coordinate, Error> {
        check_record(payload)?;
        let reply = self.ask(Type::PushTracked, d, |out| out.extend_from_slice(payload))?;
        let checked = match codec::parse_coordinate(&reply) {
            Ok(c) if codec::record_id(&c.segment, c.index, payload) == c.id => Ok(c),
            Ok(_) => Err(Error::protocol("the coordinate is of another record")),
            Err(v) => Err(Error::verdict("the coordinate", v)),
        };
        self.keep_if_ok(checked)
    }

    /// Sends 1 to 2048 records in one frame of at most 16 MiB (a daemon may take fewer: 1024 by default). Element i of the result tells
    /// whether record i is as safe as `d` asks for; where it is false its fate is unknown.
    pub fn push_batch<T: AsRef<[u8]>>(&mut self, d: Durability, records: &[T]) -> Result<Vec<bool>, Error> {
        if records.is_empty() || records.len() > MAX_BATCH_RECORDS {
            return Err(Error::Invalid(format!("a batch of {} records: 1 to {MAX_BATCH_RECORDS} are possible", records.len())));
        }
        let mut size = 3;
        for r in records {
            check_record(r.as_ref())?;
            size += 4 + r.as_ref().len();
        }
        if size > MAX_PAYLOAD {
            return Err(Error::Invalid(format!("a batch of {size} bytes: {MAX_PAYLOAD} are the most")));
        }
        let reply = self.ask(Type::PushBatch, d, |out| codec::append_batch(out, records))?;
        let checked = codec::parse_ack_batch(&reply, records.len()).map_err(|v| Error::verdict("the answer to the batch", v));
        self.keep_if_ok(checked)
    }

    /// Asks whether the daemon answers.
    pub fn health(&mut self) -> Result<(), Error> {
        self.ask(Type::HealthCheck, Durability::Durable, |_| {}).map(drop)
    }

    fn keep_if_ok<T>(&mut self, r: Result<T, Error>) -> Result<T, Error> {
        if r.is_err() {
            self.stream = None;
        }
        r
    }

    /// Sends a frame and returns the payload of its answer. The connection is kept after an answer and after a transient Nack only.
    fn ask(&mut self, kind: Type, d: Durability, body: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, Error> {
        self.buf.clear();
        self.buf.resize(HEADER_LEN, 0);
        body(&mut self.buf);
        let payload_len = self.buf.len() - HEADER_LEN;
        self.buf[..HEADER_LEN].copy_from_slice(&codec::header(kind, d, payload_len));
        let crc = crc32fast::hash(&self.buf[HEADER_LEN..]);
        self.buf.extend_from_slice(&crc.to_le_bytes());
        let mut stream = match self.stream.take() {
            Some(s) => s,
            None => connect(&self.path)?,
        };
        let answer = exchange(&mut stream, &self.buf, kind, Instant::now() + self.timeout);
        if matches!(answer, Ok(_) | Err(Error::Transient)) {
            self.stream = Some(stream);
        }
        if self.buf.capacity() > 1 << 20 {
            self.buf = Vec::new();
        }
        answer
    }
}

fn exchange(stream: &mut UnixStream, request: &[u8], kind: Type, deadline: Instant) -> Result<Vec<u8>, Error> {
    write_all(stream, request, deadline)?;
    let mut head = [0; HEADER_LEN];
    read_all(stream, &mut head, deadline)?;
    let h = check_reply(&head, kind)?;
    let mut body = vec![0; h.payload_len + 4];
    read_all(stream, &mut body, deadline)?;
    let (payload, crc) = body.split_at(h.payload_len);
    codec::check_crc(payload, crc).map_err(|v| Error::verdict("the reply", v))?;
    if h.kind == Type::Nack {
        return Err(nacked(payload));
    }
    body.truncate(h.payload_len);
    Ok(body)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(d) if !d.is_zero() => Ok(d),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn write_all(stream: &mut UnixStream, mut b: &[u8], deadline: Instant) -> Result<(), Error> {
    while !b.is_empty() {
        let wrote = left(deadline).and_then(|d| stream.set_write_timeout(Some(d))).and_then(|()| stream.write(b));
        match wrote {
            Ok(n) => b = &b[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The daemon hung up; what it said before that is still to be read.
            Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => return Ok(()),
            Err(e) => return Err(Error::io("write", e)),
        }
    }
    Ok(())
}

fn read_all(stream: &mut UnixStream, mut b: &mut [u8], deadline: Instant) -> Result<(), Error> {
    while !b.is_empty() {
        match left(deadline).and_then(|d| stream.set_read_timeout(Some(d))).and_then(|()| stream.read(b)) {
            Ok(0) => return Err(Error::protocol("the daemon closed the connection")),
            Ok(n) => b = &mut b[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", e)),
        }
    }
    Ok(())
}
