use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// Returns a message of the protocol.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn error(severity: &str, code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SFEHLER\0V{severity}\0C{code}\0M{text}\0Fparse.c\0\0").as_bytes())
}

/// Returns the driver's end of a stream, the database's end, and the activity of the stream.
fn stream() -> (DatabaseStream<DuplexStream>, DuplexStream, Arc<Activity>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let activity = Arc::new(Activity::default());
    (DatabaseStream::new(ours, activity.clone()), theirs, activity)
}

/// Sends `bytes` in pieces of `piece` bytes. Returns what the driver receives.
async fn passed_on(bytes: &[u8], piece: usize) -> Vec<u8> {
    let (mut ours, mut theirs, _) = stream();
    let mut read = Vec::new();
    for piece in bytes.chunks(piece) {
        theirs.write_all(piece).await.unwrap();
        let mut buffer = [0; 7];
        while let Some(Ok(length)) = futures_util::FutureExt::now_or_never(ours.read(&mut buffer)) {
            read.extend_from_slice(&buffer[..length]);
        }
    }
    drop(theirs);
    ours.read_to_end(&mut read).await.unwrap();
    read
}

#[tokio::test]
async fn an_error_gets_its_code_and_all_other_messages_are_passed_on_unchanged() {
    let row = message(b'D', &[7; 100]);
    let ready = message(b'Z', b"I");
    let before = [row.clone(), error("ERROR", "40P01", "Verklemmung entdeckt"), ready.clone(), row.clone()].concat();
    let after = [row.clone(), error("ERROR", "40P01", "40P01: Verklemmung entdeckt"), ready, row].concat();
    for piece in [1, 2, 3, 5, 50, before.len()] {
        assert_eq!(passed_on(&before, piece).await, after, "in pieces of {piece}");
    }
}

#[tokio::test]
async fn a_panic_gets_no_code_since_the_outcome_of_a_commit_is_unknown() {
    let panic = error("PANIC", "58030", "could not write");
    assert_eq!(passed_on(&panic, 1000).await, panic);
}

#[tokio::test]
async fn an_incomplete_error_is_not_passed_on() {
    let row = message(b'D', &[7; 10]);
    let whole = error("ERROR", "40P01", "deadlock");
    assert_eq!(passed_on(&[row.as_slice(), &whole[..whole.len() - 3]].concat(), 4).await, row);
}

#[tokio::test]
async fn a_connection_is_idle_when_every_response_has_arrived() {
    let (mut ours, mut theirs, activity) = stream();
    let is_idle = || activity.is_idle();
    // The startup message has no type byte, and its response does not count.
    ours.write_all(&[0, 0, 0, 8, 1, 2, 3, 4]).await.unwrap();
    theirs.write_all(&message(b'Z', b"I")).await.unwrap();
    let ready = message(b'Z', b"I");
    let mut buffer = vec![0; ready.len()];
    ours.read_exact(&mut buffer).await.unwrap();
    assert!(is_idle());
    let requests = [message(b'B', b"bind"), message(b'S', b""), message(b'Q', b"COMMIT\0")].concat();
    ours.write_all(&requests).await.unwrap();
    assert!(!is_idle());
    theirs.write_all(&ready).await.unwrap();
    ours.read_exact(&mut buffer).await.unwrap();
    assert!(!is_idle(), "one of two responses has arrived");
    let waiting = tokio::spawn({
        let activity = activity.clone();
        async move { activity.idle().await }
    });
    let refusal = [error("ERROR", "57014", "canceled"), ready].concat();
    theirs.write_all(&refusal).await.unwrap();
    buffer.resize(refusal.len() + "57014: ".len(), 0);
    ours.read_exact(&mut buffer).await.unwrap();
    assert!(is_idle());
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_connection_knows_whether_it_is_within_a_transaction() {
    for piece in [1, 5, 6, 100] {
        let (mut ours, mut theirs, activity) = stream();
        for (responses, is_in_transaction) in [
            (message(b'Z', b"I"), false),
            (message(b'Z', b"T"), true),
            ([error("ERROR", "57014", "canceled"), message(b'Z', b"E")].concat(), true),
            (message(b'Z', b"I"), false),
        ] {
            for piece in responses.chunks(piece) {
                theirs.write_all(piece).await.unwrap();
                let mut buffer = [0; 200];
                while let Some(Ok(1..)) = futures_util::FutureExt::now_or_never(ours.read(&mut buffer)) {}
            }
            assert_eq!(activity.is_in_transaction(), is_in_transaction, "in pieces of {piece}");
        }
    }
}
