//! One connection: reads requests and sends the responses that the script asks for, good or broken.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Recorded;
use super::desk::ReceiverState;
use super::gate::Gate;
use super::reply::{Manner, Reply};

/// A stream whose TCP connection can be reset.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Whether the connection stays open after a response.
#[derive(PartialEq, Eq)]
enum Then {
    KeepAlive,
    HangUp,
}

/// Serves a connection until it ends. A sender that hangs up is not an error.
pub(super) async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, number: usize, state: Arc<ReceiverState>) {
    let _ = match acceptor {
        None => serve_requests(stream, number, state).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => serve_requests(stream, number, state).await,
            Err(refused) => Err(refused),
        },
    };
}

async fn serve_requests(mut wire: impl Wire, number: usize, state: Arc<ReceiverState>) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = Recorded::read(&mut wire, &mut buffer, number).await? {
        let (reply, in_flight) = state.record(request);
        let then = answer(&mut wire, reply, &mut buffer).await?;
        drop(in_flight);
        if then == Then::HangUp {
            break;
        }
    }
    // A reset must not become an orderly shutdown.
    if wire.tcp().linger()?.is_none() { wire.shutdown().await } else { Ok(()) }
}

async fn answer(wire: &mut impl Wire, reply: Reply, buffer: &mut Vec<u8>) -> io::Result<Then> {
    if let Some(gate) = &reply.gate {
        wait_at(gate, wire, buffer).await?;
    }
    match &reply.manner {
        Manner::Whole => {
            // In one write: a response is split only where the script says so.
            let mut bytes = reply.head(Some(reply.body.len())).into_bytes();
            bytes.extend_from_slice(&reply.body);
            send(wire, &bytes).await?;
            return Ok(Then::KeepAlive);
        }
        Manner::BodyHeldBy(gate) => {
            send(wire, reply.head(Some(reply.body.len() + 1)).as_bytes()).await?;
            send(wire, &reply.body).await?;
            wait_at(gate, wire, buffer).await?;
            send(wire, b".").await?;
            return Ok(Then::KeepAlive);
        }
        Manner::Endless => send_endlessly(wire, &reply).await?,
        Manner::Reset => wire.tcp().set_zero_linger()?,
        Manner::ResetAfterHeaders => {
            send(wire, reply.head(Some(reply.body.len() + 1)).as_bytes()).await?;
            wire.tcp().set_zero_linger()?;
        }
        Manner::Close => {}
        Manner::CloseAfterHeaders => send(wire, reply.head(Some(reply.body.len() + 1)).as_bytes()).await?,
        Manner::Raw => send(wire, &reply.body).await?,
    }
    Ok(Then::HangUp)
}

async fn send(wire: &mut impl Wire, bytes: &[u8]) -> io::Result<()> {
    wire.write_all(bytes).await?;
    wire.flush().await
}

async fn send_endlessly(wire: &mut impl Wire, reply: &Reply) -> io::Result<()> {
    send(wire, reply.head(None).as_bytes()).await?;
    let filling = if reply.body.is_empty() { b"more and " } else { reply.body.as_slice() };
    let chunk = [format!("{:x}\r\n", filling.len()).as_bytes(), filling, b"\r\n"].concat();
    loop {
        send(wire, &chunk).await?;
    }
}

/// Waits until the gate opens or the sender hangs up.
async fn wait_at(gate: &Gate, wire: &mut impl Wire, buffer: &mut Vec<u8>) -> io::Result<()> {
    let hung_up = async {
        while wire.read_buf(buffer).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::select! {
        () = gate.opened() => Ok(()),
        outcome = hung_up => Err(outcome.err().unwrap_or(io::ErrorKind::UnexpectedEof.into())),
    }
}
