//! Server-Sent Events, read piece by piece.

/// The most bytes of a line, and of the data of one event.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// One event. An `id` without data is an event, too: it moves the position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerSent {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
}

/// Reads events from bytes that come in pieces.
#[derive(Debug, Default)]
pub(super) struct Reader {
    line: Vec<u8>,
    current: ServerSent,
    /// Whether the current event has anything.
    has_fields: bool,
}

impl Reader {
    /// Adds bytes, and returns the events that are complete, or an error if one is too large.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<Vec<ServerSent>, String> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() + self.current.data.len() > MAX_BYTES {
                    return Err(format!("an event of more than {MAX_BYTES} bytes"));
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            match line.trim_end_matches('\r') {
                "" if self.has_fields => {
                    self.has_fields = false;
                    events.push(std::mem::take(&mut self.current));
                }
                "" => {}
                field => self.field(field),
            }
        }
        Ok(events)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.current.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.current.name),
            "data" => {
                if !self.current.data.is_empty() {
                    self.current.data.push('\n');
                }
                self.current.data.push_str(value);
            }
            // Comments and what later versions may add.
            _ => return,
        }
        self.has_fields = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_from_pieces_of_any_size() {
        let text = "retry: 2000\n\nid: a\n\n: still here\n\nid: b\nevent: log\ndata: {\"title\":\"ä\"}\n\nevent: end\ndata: x\n";
        for size in [1, 2, 7, 1000] {
            let mut reader = Reader::default();
            let events: Vec<ServerSent> =
                text.as_bytes().chunks(size).flat_map(|piece| reader.add(piece).unwrap()).collect();
            let position = ServerSent { id: Some("a".into()), ..ServerSent::default() };
            let entry = ServerSent { id: Some("b".into()), name: "log".into(), data: "{\"title\":\"ä\"}".into() };
            // The last event is not complete: the connection was lost in the middle of it.
            assert_eq!(events, [position, entry]);
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        assert!(Reader::default().add(&vec![b'x'; MAX_BYTES + 1]).is_err());
    }
}
