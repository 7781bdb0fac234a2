use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// A message of the backend.
fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![letter];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn error(severity: &str, code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SFEHLER\0V{severity}\0C{code}\0M{text}\0Fparse.c\0\0").as_bytes())
}

/// Our end, that of the database, and how many answers are to come.
fn stream() -> (DatabaseStream<DuplexStream>, DuplexStream, Arc<Activity>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let activity = Arc::new(Activity::default());
    (DatabaseStream::new(ours, activity.clone()), theirs, activity)
}

/// What arrives of these bytes, however they are cut into pieces.
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
async fn an_error_gets_its_code_and_everything_else_is_passed_on_as_it_is() {
    let row = message(b'D', &[7; 100]);
    let ready = message(b'Z', b"I");
    let before = [row.clone(), error("ERROR", "40P01", "Verklemmung entdeckt"), ready.clone(), row.clone()].concat();
    let after = [row.clone(), error("ERROR", "40P01", "40P01: Verklemmung entdeckt"), ready, row].concat();
    for piece in [1, 2, 3, 5, 50, before.len()] {
        assert_eq!(passed_on(&before, piece).await, after, "in pieces of {piece}");
    }
}

#[tokio::test]
async fn a_panic_keeps_its_message_since_nobody_knows_what_was_committed() {
    let panic = error("PANIC", "58030", "could not write");
    assert_eq!(passed_on(&panic, 1000).await, panic);
}

#[tokio::test]
async fn a_message_that_never_ends_is_not_made_up() {
    let row = message(b'D', &[7; 10]);
    let whole = error("ERROR", "40P01", "deadlock");
    assert_eq!(passed_on(&[row.as_slice(), &whole[..whole.len() - 3]].concat(), 4).await, row);
}

#[tokio::test]
async fn a_connection_is_idle_when_every_question_is_answered() {
    let (mut ours, mut theirs, activity) = stream();
    let is_idle = || activity.is_idle();
    // The start has neither a letter nor an answer that counts.
    ours.write_all(&[0, 0, 0, 8, 1, 2, 3, 4]).await.unwrap();
    theirs.write_all(&message(b'Z', b"I")).await.unwrap();
    let ready = message(b'Z', b"I");
    let mut buffer = vec![0; ready.len()];
    ours.read_exact(&mut buffer).await.unwrap();
    assert!(is_idle());
    let questions = [message(b'B', b"bind"), message(b'S', b""), message(b'Q', b"COMMIT\0")].concat();
    ours.write_all(&questions).await.unwrap();
    assert!(!is_idle());
    theirs.write_all(&ready).await.unwrap();
    ours.read_exact(&mut buffer).await.unwrap();
    assert!(!is_idle(), "one of two is answered");
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
