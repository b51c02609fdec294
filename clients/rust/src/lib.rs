//! The Rust client of the weir daemon, which keeps records safe on the local disk until they are delivered.
//!
//! [`Client`] sends one frame at a time and returns its answer. [`Producer`] keeps many frames in flight, reconnects by itself, and
//! reports what became of each record, in order. [`codec`] is the wire (weir wire v1) on byte slices, without I/O.
//!
//! An ack means *kept*, not delivered. After [`Error::Transient`] and [`Error::Unknown`] a record may or may not be stored: push it again, and expect
//! that it may be delivered twice. After [`Error::Refused`] it is not stored, and pushing the same again will not help.
//!
//! ```no_run
//! use weir::{Client, Durability};
//!
//! let mut client = Client::new(weir::default_path());
//! match client.push(Durability::Durable, b"hello") {
//!     Ok(()) => println!("kept"),
//!     Err(e) if e.may_retry() => println!("push it again: {e}"),
//!     Err(e) => println!("left out: {e}"),
//! }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
pub mod codec;
mod error;
mod producer;
mod sha256;

pub use client::{default_path, Client};
pub use codec::{Coordinate, Durability};
pub use error::Error;
pub use producer::{Outcome, Producer, ProducerOptions};
