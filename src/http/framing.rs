//! Finds the end of a request in a stream of bytes.
//!
//! It reads only what it needs to find the end: the blank line after the head, and the length of the
//! body. actix-http validates the request. If the two disagree about a malformed request, no harm is
//! done: actix-http refuses it and closes the connection.

/// How far the current request has been read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Inside the head. Holds the part of it that has arrived.
    Head(Vec<u8>),
    /// Inside the body. Holds the number of missing bytes; 0 is the end of the request.
    Body(u64),
    /// Inside a chunked body.
    Chunks(Chunks),
}

/// How far a chunked body has been read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// Inside the line with the size of the next chunk.
    Size {
        /// The size according to the digits read so far.
        bytes: u64,
        /// Whether all digits have been read. The line may go on with extensions.
        is_read: bool,
    },
    /// Inside a chunk. Holds the number of missing bytes, including the line break after the chunk.
    Data(u64),
    /// Inside a trailer line after the last chunk.
    Trailer {
        /// Whether the line is empty so far.
        is_empty: bool,
    },
    End,
}

impl Chunks {
    const NEXT: Chunks = Chunks::Size { bytes: 0, is_read: false };

    /// Reads bytes. Returns the number of them that belong to the body.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && *self != Chunks::End {
            if let Chunks::Data(missing) = self {
                let count = (bytes.len() - taken).min(usize::try_from(*missing).unwrap_or(usize::MAX));
                *missing -= count as u64;
                taken += count;
                if *missing == 0 {
                    *self = Chunks::NEXT;
                }
                continue;
            }
            self.take_byte(bytes[taken]);
            taken += 1;
        }
        taken
    }

    /// Reads a byte of a size or trailer line.
    fn take_byte(&mut self, byte: u8) {
        match self {
            Chunks::Size { bytes: 0, .. } if byte == b'\n' => *self = Chunks::Trailer { is_empty: true },
            Chunks::Size { bytes, .. } if byte == b'\n' => *self = Chunks::Data(bytes.saturating_add(2)),
            Chunks::Size { bytes, is_read } => match char::from(byte).to_digit(16) {
                Some(digit) if !*is_read => *bytes = bytes.saturating_mul(16).saturating_add(digit.into()),
                _ => *is_read = true,
            },
            Chunks::Trailer { is_empty: true } if byte == b'\n' => *self = Chunks::End,
            Chunks::Trailer { is_empty } => *is_empty = byte == b'\n' || (*is_empty && byte == b'\r'),
            Chunks::Data(_) | Chunks::End => {}
        }
    }
}

impl Default for Framing {
    fn default() -> Self {
        Framing::Head(Vec::new())
    }
}

impl Framing {
    /// Returns whether the whole request has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self, Framing::Body(0) | Framing::Chunks(Chunks::End))
    }

    /// Reads bytes. Returns the number of them that belong to the request, which is at least 1 unless
    /// `bytes` is empty or the request is at its end.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if let Framing::Head(seen) = self {
            let Some((end, body)) = read_head(seen, bytes) else { return bytes.len() };
            taken = end;
            *self = body;
        }
        match self {
            Framing::Body(missing) => {
                let count = (bytes.len() - taken).min(usize::try_from(*missing).unwrap_or(usize::MAX));
                *missing -= count as u64;
                taken + count
            }
            Framing::Chunks(chunks) => taken + chunks.take(&bytes[taken..]),
            Framing::Head(_) => bytes.len(),
        }
    }
}

/// Reads the head that starts with `seen` and continues with `bytes`. Returns its end in `bytes` and
/// the framing of its body. If the head is incomplete, adds `bytes` to `seen`.
fn read_head(seen: &mut Vec<u8>, bytes: &[u8]) -> Option<(usize, Framing)> {
    if seen.is_empty()
        && let Some(end) = end_of_head(bytes, 0)
    {
        return Some((end, body_framing(&bytes[..end])));
    }
    let before = seen.len();
    seen.extend_from_slice(bytes);
    // The blank line may have begun in the bytes seen before.
    let end = end_of_head(seen, before.saturating_sub(3))?;
    Some((end - before, body_framing(&seen[..end])))
}

/// Returns the end of the first blank line that begins at `from` or later. Line breaks before the
/// request line are ignored.
fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    let start = head.iter().position(|byte| !b"\r\n".contains(byte))?;
    let mut at = start.max(from);
    loop {
        at += head[at..].iter().position(|byte| *byte == b'\n')? + 1;
        match head[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// Returns the framing of the body that follows a head.
fn body_framing(head: &[u8]) -> Framing {
    let mut length = 0;
    for line in head.split(|byte| *byte == b'\n') {
        // The first letter rules out most headers cheaply.
        let first = line.first().map_or(0, u8::to_ascii_lowercase);
        if first == b't' && header_value(line, b"transfer-encoding").is_some() {
            return Framing::Chunks(Chunks::NEXT);
        }
        if first == b'c'
            && let Some(value) = header_value(line, b"content-length")
        {
            length = str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        }
    }
    Framing::Body(length)
}

fn header_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (line_name, remainder) = line.split_at_checked(name.len())?;
    line_name.eq_ignore_ascii_case(name).then_some(remainder)?.strip_prefix(b":")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET /tags HTTP/1.1\r\nHost: localhost\r\nTE: x\r\n\r\n";
    const POST: &[u8] = b"POST /events HTTP/1.1\r\nhost: x\r\nCONTENT-length:  5\r\n\r\n{   }";

    #[test]
    fn a_request_ends_after_its_body_and_later_bytes_are_not_taken() {
        for request in [GET, POST, b"GET / HTTP/1.1\nHost: x\n\n", b"\r\n\r\nGET / HTTP/1.0\r\n\r\n"] {
            let mut framing = Framing::default();
            assert_eq!(framing.take(&[request, GET].concat()), request.len());
            assert!(framing.is_at_end());
        }
    }

    #[test]
    fn a_request_may_arrive_in_two_pieces_cut_anywhere() {
        let all = [POST, GET].concat();
        for cut in 1..POST.len() {
            let mut framing = Framing::default();
            assert_eq!(framing.take(&all[..cut]), cut);
            assert!(!framing.is_at_end());
            assert_eq!(framing.take(&all[cut..]), POST.len() - cut, "cut at {cut}");
            assert!(framing.is_at_end());
        }
    }

    #[test]
    fn a_request_may_arrive_byte_by_byte() {
        let mut framing = Framing::default();
        for byte in POST {
            assert!(!framing.is_at_end());
            assert_eq!(framing.take(&[*byte]), 1);
        }
        assert!(framing.is_at_end());
    }

    #[test]
    fn a_chunked_body_ends_after_its_trailers_wherever_it_is_cut() {
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let bodies =
            ["0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "5;a=1\r\nhe\nlo\r\n0B\r\n0123456789a\r\n0\r\nx: y\r\n\r\n"];
        for body in bodies {
            let request = [head, body.as_bytes()].concat();
            let all = [&request, GET].concat();
            for cut in 1..request.len() {
                let mut framing = Framing::default();
                assert_eq!(framing.take(&all[..cut]), cut);
                assert!(!framing.is_at_end(), "{body:?} cut at {cut}");
                assert_eq!(framing.take(&all[cut..]), request.len() - cut, "{body:?} cut at {cut}");
                assert!(framing.is_at_end());
            }
        }
    }

    #[test]
    fn an_invalid_length_counts_as_no_body() {
        for length in ["-1", "x", "", "99999999999999999999"] {
            let head = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\nContent-Lengthy: 7\r\n\r\n");
            let mut framing = Framing::default();
            assert_eq!(framing.take(head.as_bytes()), head.len());
            assert!(framing.is_at_end(), "{length}");
        }
    }
}
