//! A client of Server-Sent Events.

use serde_json::Value;

use super::{App, within_patience};

/// What stands between two empty lines of a stream.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub id: Option<String>,
    /// The name of an event. `None` if there is only an id or a comment.
    pub event: Option<String>,
    pub data: Option<Value>,
    pub comment: Option<String>,
}

/// A stream of the event log.
pub(crate) struct EventStream {
    response: reqwest::Response,
    received: Vec<u8>,
    /// The last id that was received.
    pub last_id: String,
}

impl EventStream {
    /// Opens a stream that begins now; `query` is empty or begins with `?`. It has begun when this returns.
    pub(crate) async fn open(app: &App, query: &str) -> Self {
        Self::begin(app.client.get(format!("{}/logs/stream{query}", app.base))).await
    }

    /// Opens a stream behind an id of an earlier one.
    pub(crate) async fn open_behind(app: &App, query: &str, last_id: &str) -> Self {
        let request = app.client.get(format!("{}/logs/stream{query}", app.base));
        Self::begin(request.header("Last-Event-ID", last_id)).await
    }

    /// Opens a stream that begins now, without waiting for its position.
    pub(crate) async fn ask(app: &App, query: &str) -> Self {
        Self::send(app.client.get(format!("{}/logs/stream{query}", app.base))).await
    }

    async fn send(request: reqwest::RequestBuilder) -> Self {
        let response = within_patience(request.send()).await.expect("a response");
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        EventStream { response, received: Vec::new(), last_id: String::new() }
    }

    async fn begin(request: reqwest::RequestBuilder) -> Self {
        let mut stream = Self::send(request).await;
        stream.until_begun().await;
        stream
    }

    /// Waits for the position at which the stream begins.
    pub(crate) async fn until_begun(&mut self) {
        while self.last_id.is_empty() {
            let block = self.block().await.expect("the position");
            assert_eq!(block.event, None, "{block:?}");
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).map(|value| value.to_str().expect("text"))
    }

    /// Returns the next block, or `None` at the end of the response.
    pub(crate) async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(end) = self.received.windows(2).position(|window| window == b"\n\n") {
                let text: Vec<u8> = self.received.drain(..end + 2).collect();
                return Some(self.read_block(&String::from_utf8(text).expect("text")));
            }
            let piece = within_patience(self.response.chunk()).await.expect("a response that is not cut off");
            let Some(piece) = piece else {
                assert!(self.received.is_empty(), "{:?}", String::from_utf8_lossy(&self.received));
                return None;
            };
            self.received.extend_from_slice(&piece);
        }
    }

    fn read_block(&mut self, text: &str) -> Block {
        let mut block = Block::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ").expect("a name and a value") {
                ("id", id) => block.id = Some(id.to_owned()),
                ("event", event) => block.event = Some(event.to_owned()),
                ("data", data) => block.data = Some(serde_json::from_str(data).expect("JSON")),
                ("", comment) => block.comment = Some(comment.to_owned()),
                ("retry", _) => {}
                _ => panic!("{line}"),
            }
        }
        if let Some(id) = &block.id {
            self.last_id.clone_from(id);
        }
        block
    }

    /// Waits for the next event. Returns its name and its data.
    pub(crate) async fn event(&mut self) -> Option<(String, Value)> {
        // Heartbeats may come for ever.
        within_patience(async {
            loop {
                let block = self.block().await?;
                if let Some(event) = block.event {
                    return Some((event, block.data.expect("data")));
                }
            }
        })
        .await
    }

    /// Waits for the next entry.
    pub(crate) async fn entry(&mut self) -> Value {
        match self.event().await {
            Some((event, entry)) if event == "log" => entry,
            other => panic!("no entry: {other:?}"),
        }
    }

    /// Waits for this many entries. Returns their ids.
    pub(crate) async fn ids(&mut self, count: usize) -> Vec<i64> {
        let mut ids = Vec::new();
        while ids.len() < count {
            ids.push(self.entry().await["id"].as_i64().expect("an id"));
        }
        ids
    }

    /// Waits for the end of the stream. Returns the ids of the entries before it, and its reason.
    pub(crate) async fn rest(&mut self) -> (Vec<i64>, String) {
        let mut ids = Vec::new();
        loop {
            match self.event().await {
                Some((event, entry)) if event == "log" => ids.push(entry["id"].as_i64().expect("an id")),
                Some((event, end)) if event == "end" => {
                    assert!(self.block().await.is_none(), "nothing follows the end");
                    return (ids, end["reason"].as_str().expect("a reason").to_owned());
                }
                other => panic!("no end: {other:?}"),
            }
        }
    }
}
