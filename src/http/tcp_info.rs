//! What the kernel knows about a TCP connection: how much the peer's kernel has acknowledged,
//! and whether the connection is over.
//!
//! Linux tells it by `TCP_INFO` (since 4.1). Elsewhere, and from kernels that answer without
//! counting, nothing is known.

use std::time::Duration;

use tokio::net::TcpStream;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// Bytes that the peer's kernel has acknowledged since the connection was made. Outlives
    /// a reset.
    pub acknowledged: u64,
    /// How long ago the last acknowledgement came.
    pub since_acknowledged: Duration,
    /// Whether the connection is over: reset, timed out, or closed by both sides.
    pub is_over: bool,
}

impl TcpInfo {
    /// Returns the state of a connection over which something was received, or `None` if the
    /// system does not tell it.
    #[cfg(target_os = "linux")]
    pub fn of(socket: &TcpStream) -> Option<Self> {
        let info = nix::sys::socket::getsockopt(socket, linux::ReadTcpInfo).ok()?;
        // A kernel that has received nothing although a request has come does not count.
        (info.bytes_received > 0).then(|| TcpInfo {
            acknowledged: info.bytes_acked,
            since_acknowledged: Duration::from_millis(info.last_ack_recv.into()),
            is_over: info.state == linux::TCP_CLOSE,
        })
    }

    /// Returns `None`: this system does not tell the state of a connection.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_socket: &TcpStream) -> Option<Self> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use nix::libc;
    use nix::{getsockopt_impl, sockopt_impl};

    /// The number of the state "closed" in the kernel's `tcp_states.h`.
    pub const TCP_CLOSE: u8 = 7;

    /// The beginning of the kernel's `struct tcp_info`, which only grows at its end.
    #[repr(C)]
    #[derive(Debug, Clone, Copy)]
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
