use std::fmt;
use std::io;

use crate::codec::{reason_name, Verdict, VERSION};

/// What went wrong with a push, by what it means for the record.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are wrong; nothing was sent.
    Invalid(String),
    /// The daemon will not take it: it is not stored, and sending the same again will not help.
    Refused {
        /// The reason byte; 0x0A and others may be unassigned, see [`reason_name`].
        reason: u8,
        /// With VersionMismatch: the daemon's wire version.
        daemon_version: Option<u8>,
    },
    /// The daemon could not store it now (its disk, its cap): its fate is unknown.
    Transient,
    /// The connection or the wait ended, or the answer made no sense: its fate is unknown.
    Unknown {
        /// Why.
        why: String,
        /// The system's error behind it, if there is one.
        source: Option<io::Error>,
    },
}

impl Error {
    /// Reports whether the record may be stored or not, so that it has to be pushed again.
    pub fn may_retry(&self) -> bool {
        matches!(self, Error::Transient | Error::Unknown { .. })
    }

    pub(crate) fn io(what: &str, e: io::Error) -> Error {
        let timeout = matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let why = if timeout { format!("{what}: timeout") } else { format!("{what}: {e}") };
        Error::Unknown { why, source: Some(e) }
    }

    pub(crate) fn protocol(why: impl Into<String>) -> Error {
        Error::Unknown { why: why.into(), source: None }
    }

    pub(crate) fn verdict(what: &str, v: Verdict) -> Error {
        match v {
            Verdict::VersionMismatch(version) => {
                Error::protocol(format!("{what} is in wire version {version}; this client speaks {VERSION}"))
            }
            v => Error::protocol(format!("{what} does not decode: {}", v.name())),
        }
    }

    /// A copy for the outcomes of several records.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Invalid(why) => Error::Invalid(why.clone()),
            Error::Refused { reason, daemon_version } => Error::Refused { reason: *reason, daemon_version: *daemon_version },
            Error::Transient => Error::Transient,
            Error::Unknown { why, .. } => Error::protocol(why.clone()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(why) => write!(f, "weir: {why}"),
            Error::Refused { daemon_version: Some(theirs), .. } => write!(
                f,
                "weir: the daemon is on wire version {theirs}; this client is built for version {VERSION}: upgrade the daemon or downgrade the client"
            ),
            Error::Refused { reason, .. } => write!(f, "weir: refused: {} (0x{reason:02x})", reason_name(*reason)),
            Error::Transient => write!(f, "weir: the daemon could not store it now"),
            Error::Unknown { why, .. } => write!(f, "weir: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unknown { source: Some(e), .. } => Some(e),
            _ => None,
        }
    }
}
