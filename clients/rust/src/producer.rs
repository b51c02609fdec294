use std::collections::hash_map::RandomState;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{check_record, check_reply, connect, nacked};
use crate::codec::{self, Durability, Type, HEADER_LEN};
use crate::error::Error;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const OUT_BYTES: usize = 64 << 10;

/// How a [`Producer`] works.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The daemon's socket.
    pub path: PathBuf,
    /// Of all records.
    pub durability: Durability,
    /// Frames that may be unanswered.
    pub window: usize,
    /// How long the daemon may leave the oldest frame unanswered.
    pub timeout: Duration,
    /// The longest pause before another try to connect; it doubles from 50 ms, and a random part of it is left out.
    pub max_backoff: Duration,
}

impl ProducerOptions {
    /// Durable records, 256 frames in flight, 30 seconds, pauses of at most 5 seconds.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ProducerOptions {
            path: path.into(),
            durability: Durability::Durable,
            window: 256,
            timeout: Duration::from_secs(30),
            max_backoff: Duration::from_secs(5),
        }
    }
}

/// What became of one record.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What was given to [`Producer::send`] with it.
    pub tag: T,
    /// `Ok`: it is as safe as it was asked to be.
    pub result: Result<(), Error>,
}

/// Keeps many frames in flight on one connection. Each record that `send` took gets exactly one [`Outcome`], in the order of the sends.
/// After an error of the connection every record in flight is unknown, and it is up to the caller to send it again; the next send
/// connects anew, after a pause that grows.
pub struct Producer<T: Send + 'static> {
    options: ProducerOptions,
    shared: Arc<Shared<T>>,
    link: Option<Link>,
    out: Vec<u8>,
    backoff: Duration,
    random: u64,
}

struct Link {
    stream: UnixStream,
    reader: thread::JoinHandle<()>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    report: Box<dyn Fn(Outcome<T>) + Send + Sync>,
}

struct State<T> {
    in_flight: VecDeque<(T, Instant)>,
    broken: bool,
    answered: bool, // on this connection
}

impl<T: Send + 'static> Producer<T> {
    /// A producer that tells `report` of each outcome, from a thread of its own or from `send`. `report` must not use the producer.
    pub fn new(options: ProducerOptions, report: impl Fn(Outcome<T>) + Send + Sync + 'static) -> Self {
        let seed = RandomState::new().build_hasher().finish() | 1;
        Producer {
            options,
            shared: Arc::new(Shared {
                state: Mutex::new(State { in_flight: VecDeque::new(), broken: false, answered: false }),
                changed: Condvar::new(),
                report: Box::new(report),
            }),
            link: None,
            out: Vec::with_capacity(OUT_BYTES),
            backoff: Duration::ZERO,
            random: seed,
        }
    }

    /// Takes a record of 1 byte to 16 MiB. While the window is full it waits. An error means that the record was not taken, and gets no
    /// outcome; it is [`Error::Invalid`].
    pub fn send(&mut self, payload: &[u8], tag: T) -> Result<(), Error> {
        check_record(payload)?;
        if self.shared.lock().in_flight.len() >= self.options.window.max(1) {
            self.write();
            self.wait(self.options.window.max(1) / 2);
        }
        self.drop_broken();
        if self.link.is_none() {
            if let Err(e) = self.connect() {
                (self.shared.report)(Outcome { tag, result: Err(e) });
                return Ok(());
            }
        }
        self.shared.lock().in_flight.push_back((tag, Instant::now()));
        codec::append_frame(&mut self.out, Type::Push, self.options.durability, payload);
        if self.out.len() >= OUT_BYTES {
            self.write();
        }
        Ok(())
    }

    /// Returns when every record that was sent has its outcome.
    pub fn flush(&mut self) {
        self.write();
        self.wait(0);
        self.drop_broken();
    }

    /// Writes what is gathered; a connection that takes it not is broken.
    fn write(&mut self) {
        if self.out.is_empty() {
            return;
        }
        if let Some(link) = &mut self.link {
            let wrote = link.stream.set_write_timeout(Some(self.options.timeout)).and_then(|()| link.stream.write_all(&self.out));
            if let Err(e) = wrote {
                // A hang-up leaves what was said before it to the reader; all else ends the connection here.
                if !matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
                    let _ = link.stream.shutdown(Shutdown::Both); // the reader sees it
                }
            }
        }
        self.out.clear();
        if self.out.capacity() > 4 * OUT_BYTES {
            self.out = Vec::with_capacity(OUT_BYTES);
        }
    }

    /// Waits until at most so many records are in flight; where the oldest is not answered in time, the connection ends.
    fn wait(&mut self, most: usize) {
        let mut state = self.shared.lock();
        while state.in_flight.len() > most {
            let due = match state.in_flight.front() {
                Some((_, sent)) => *sent + self.options.timeout,
                None => return,
            };
            let now = Instant::now();
            if now >= due {
                if let Some(link) = &self.link {
                    let _ = link.stream.shutdown(Shutdown::Both); // the reader settles what is in flight
                }
                state = self.shared.changed.wait(state).unwrap_or_else(|e| e.into_inner());
                continue;
            }
            state = self.shared.changed.wait_timeout(state, due - now).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    fn drop_broken(&mut self) {
        if self.shared.lock().broken {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = link.stream.shutdown(Shutdown::Both); // it may be gone already
            let _ = link.reader.join(); // it has settled what was in flight
        }
        self.out.clear();
    }

    fn connect(&mut self) -> Result<(), Error> {
        {
            let mut state = self.shared.lock();
            if state.answered {
                self.backoff = Duration::ZERO;
            }
            state.broken = false;
            state.answered = false;
        }
        if !self.backoff.is_zero() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            thread::sleep(self.backoff / 2 + self.backoff.mul_f64((self.random >> 11) as f64 / (1u64 << 54) as f64));
        }
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, self.options.max_backoff.max(FIRST_BACKOFF));
        let stream = connect(&self.options.path)?;
        let read = stream.try_clone().map_err(|e| Error::io("connect", e))?;
        let shared = Arc::clone(&self.shared);
        let reader = thread::spawn(move || shared.read(read));
        self.link = Some(Link { stream, reader });
        Ok(())
    }
}

impl<T: Send + 'static> Drop for Producer<T> {
    /// Flushes, then closes.
    fn drop(&mut self) {
        self.flush();
        self.hang_up();
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the replies of one connection until it ends, then settles what is still in flight.
    fn read(&self, stream: UnixStream) {
        let mut input = BufReader::with_capacity(OUT_BYTES, stream);
        let error = loop {
            match self.reply(&mut input) {
                Ok(result) => {
                    let refused = matches!(result, Err(Error::Refused { .. }));
                    if !self.settle(result) {
                        break Error::protocol("a reply to nothing");
                    }
                    if refused {
                        break Error::protocol("the daemon closed the connection after a refusal");
                    }
                }
                Err(e) => break e,
            }
        };
        let rest = {
            let mut state = self.lock();
            state.broken = true;
            std::mem::take(&mut state.in_flight)
        };
        for (tag, _) in rest {
            (self.report)(Outcome { tag, result: Err(error.again()) });
        }
        self.changed.notify_all();
    }

    /// Gives the oldest record its outcome. A refusal is the end of the connection: no later record may be given to it.
    fn settle(&self, result: Result<(), Error>) -> bool {
        let oldest = {
            let mut state = self.lock();
            state.answered = true;
            state.broken |= matches!(result, Err(Error::Refused { .. }));
            state.in_flight.pop_front()
        };
        let Some((tag, _)) = oldest else { return false };
        (self.report)(Outcome { tag, result });
        self.changed.notify_all();
        true
    }

    fn reply(&self, input: &mut impl Read) -> Result<Result<(), Error>, Error> {
        let mut head = [0; HEADER_LEN];
        input.read_exact(&mut head).map_err(|e| Error::io("read", e))?;
        let h = check_reply(&head, Type::Push)?;
        let mut body = [0; 2 + 4];
        let body = &mut body[..h.payload_len + 4];
        input.read_exact(body).map_err(|e| Error::io("read", e))?;
        let (payload, crc) = body.split_at(h.payload_len);
        codec::check_crc(payload, crc).map_err(|v| Error::verdict("the reply", v))?;
        if h.kind != Type::Nack {
            return Ok(Ok(()));
        }
        match nacked(payload) {
            e @ Error::Unknown { .. } => Err(e),
            e => Ok(Err(e)),
        }
    }
}
