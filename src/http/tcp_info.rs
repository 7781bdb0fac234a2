//! Reads from the kernel how many bytes of a TCP connection the peer has acknowledged, and whether
//! the connection is over.
//!
//! Linux reports this in `TCP_INFO` (since 4.1). On other systems, and with kernels that fill
//! in no counts, nothing is known.

use std::time::Duration;

use tokio::net::TcpStream;

/// The state of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// The number of bytes that the peer's kernel has acknowledged since the connection was opened.
    /// Still available after a reset.
    pub acknowledged: u64,
    /// The time since the last acknowledgement.
    pub since_acknowledged: Duration,
    /// Whether the connection is over: reset, timed out, or closed by both sides.
    pub is_over: bool,
}

impl TcpInfo {
    /// Returns the state of a connection that has received at least one byte, or `None` if the system
    /// does not report it.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(socket: &TcpStream) -> Option<Self> {
        let info = nix::sys::socket::getsockopt(socket, linux::ReadTcpInfo).ok()?;
        // A request has been received, so a kernel that reports 0 bytes does not count them.
        (info.bytes_received > 0).then(|| TcpInfo {
            acknowledged: info.bytes_acked,
            since_acknowledged: Duration::from_millis(info.last_ack_recv.into()),
            is_over: info.state == linux::TCP_CLOSE,
        })
    }

    /// Returns `None`, because this system does not report the state of a connection.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_socket: &TcpStream) -> Option<Self> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use nix::libc;
    use nix::{getsockopt_impl, sockopt_impl};

    /// The state "closed" in the kernel's `tcp_states.h`.
    pub(super) const TCP_CLOSE: u8 = 7;

    /// The first fields of the kernel's `struct tcp_info`, to which kernels only append.
    #[repr(C)]
    #[derive(Debug, Clone, Copy)]
    #[expect(unreachable_pub, reason = "the socket option that the macro declares is public")]
    pub struct RawTcpInfo {
        pub state: u8,
        flags: [u8; 7],
        rto_to_last_data_recv: [u32; 12],
        /// Milliseconds.
        pub last_ack_recv: u32,
        pmtu_to_total_retrans: [u32; 11],
        pacing_rates: [u64; 2],
        pub bytes_acked: u64,
        pub bytes_received: u64,
    }

    sockopt_impl!(
        /// Reads a connection's `TCP_INFO`.
        ReadTcpInfo,
        GetOnly,
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        RawTcpInfo
    );
}
