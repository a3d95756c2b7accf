//! The sockets on which an exporter accepts connections.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::handle::ExporterAddress;
use crate::pidfd::PidfdSocket;
use crate::socket;

/// The sockets on which an exporter accepts connections: one by name, one by pidfd.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) named: OwnedFd,
    /// `None` once a client has shut it down.
    pub(crate) pidfd: Option<PidfdSocket>,
}

impl Listener {
    /// Listens on a new random name.
    pub(crate) fn bind() -> io::Result<(Self, ExporterAddress)> {
        let name = socket::random()?;
        let named = socket::listen(&name)?;
        let pidfd = PidfdSocket::bind(&name)?;
        let descriptor = pidfd.descriptor();
        let address = ExporterAddress { pid: std::process::id(), socket: name, descriptor };
        Ok((Self { named, pidfd: Some(pidfd) }, address))
    }

    /// The sockets to poll, by name first.
    pub(crate) fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.named.as_fd()), self.pidfd.as_ref().map(AsFd::as_fd)]
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        socket::shutdown(self.named.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;

    /// A forked child holds such a copy.
    #[test]
    fn a_name_that_is_dropped_refuses_connections_although_a_copy_is_open() {
        let (listener, address) = Listener::bind().unwrap();
        let _copy = listener.named.try_clone().unwrap();
        drop(listener);
        let refused = socket::connect(&address.socket, Duration::ZERO).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
