//! Mailboxes: the answers of a batch reach all callers of one thread with one wake-up.
//!
//! Each thread that serves HTTP has a runtime of its own. If the task of a batch sent every answer to its
//! caller directly, each of them would wake that thread: one system call per answer, on both sides.
//! Therefore such a thread has a [`Mailbox`] and a task that empties it. A batch posts all answers for
//! the thread at once, as one [`AnswerBundle`]. The task hands them to the callers, which wakes no thread,
//! because caller and task share it.
//!
//! Wake-up: whoever posts into an empty mailbox wakes its task, and the task takes everything that is in
//! the mailbox. A bundle that arrives after that finds the mailbox empty again, and wakes the task again.
//!
//! A mailbox closes when its task ends, together with the runtime of its thread. It drops what was posted
//! and not delivered. A dropped bundle drops its answers, so that their callers get an error, and claims
//! that did not reach a worker are undone. A closed mailbox takes nothing: the bundle is delivered by the
//! thread that tried to post it.
//!
//! Other threads have no mailbox, and their callers are answered directly.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Answers and the callers that they are for. Calling it delivers them, and dropping it refuses them.
pub(super) type AnswerBundle = Box<dyn FnOnce() + Send>;

/// The mailbox of one thread.
#[derive(Default)]
pub(super) struct Mailbox {
    contents: Mutex<Contents>,
    /// Wakes the task that empties the mailbox.
    filled: Notify,
}

#[derive(Default)]
struct Contents {
    bundles: Vec<AnswerBundle>,
    is_closed: bool,
}

thread_local! {
    static MAILBOX: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
}

/// Opens the mailbox of this thread, unless it is open already. Must be called on a thread that runs tasks
/// of its own (`spawn_local`). The callers on this thread must be such tasks, too.
pub(crate) fn open_mailbox() {
    if Mailbox::of_this_thread().is_some_and(|mailbox| !mailbox.lock().is_closed) {
        return;
    }
    let mailbox = Arc::<Mailbox>::default();
    MAILBOX.set(Some(mailbox.clone()));
    tokio::task::spawn_local(Emptying(mailbox).run());
}

impl Mailbox {
    /// Returns the mailbox of this thread, open or closed, or `None` if it has none.
    pub(super) fn of_this_thread() -> Option<Arc<Self>> {
        // While a thread ends, its variables cannot be read any more. It has no mailbox then.
        MAILBOX.try_with(|mailbox| mailbox.borrow().clone()).ok().flatten()
    }

    /// Posts a bundle. If the mailbox is closed, delivers it at once.
    pub(super) fn post(&self, bundle: AnswerBundle) {
        let mut contents = self.lock();
        if contents.is_closed {
            drop(contents);
            return bundle();
        }
        let was_empty = contents.bundles.is_empty();
        contents.bundles.push(bundle);
        drop(contents);
        if was_empty {
            self.filled.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn waiting_bundles(&self) -> usize {
        self.lock().bundles.len()
    }

    fn take_all(&self) -> Vec<AnswerBundle> {
        std::mem::take(&mut self.lock().bundles)
    }

    fn close(&self) {
        let undelivered = {
            let mut contents = self.lock();
            contents.is_closed = true;
            std::mem::take(&mut contents.bundles)
        };
        // Only now: what the answers do when they are dropped must not happen under the lock.
        drop(undelivered);
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // No code panics between two related changes, so the contents are consistent even if the lock is
        // poisoned.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Empties a mailbox, and closes it when it is dropped.
struct Emptying(Arc<Mailbox>);

impl Emptying {
    async fn run(self) {
        loop {
            self.0.filled.notified().await;
            for bundle in self.0.take_all() {
                bundle();
            }
        }
    }
}

impl Drop for Emptying {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::LocalSet;

    use super::*;

    /// Returns a bundle that reports its delivery.
    fn bundle(number: usize, delivered: &mpsc::Sender<usize>) -> AnswerBundle {
        let delivered = delivered.clone();
        Box::new(move || delivered.send(number).unwrap())
    }

    /// Returns the mailbox of a thread that runs until the returned sender is dropped.
    fn mailbox_of_another_thread() -> (Arc<Mailbox>, tokio::sync::oneshot::Sender<()>, std::thread::JoinHandle<()>) {
        let (opened, mailbox) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(LocalSet::new().run_until(async {
                open_mailbox();
                opened.send(Mailbox::of_this_thread().unwrap()).unwrap();
                let _ = stopped.await;
            }));
        });
        (mailbox.recv().unwrap(), stop, thread)
    }

    #[test]
    fn bundles_are_delivered_in_order_on_the_thread_of_the_mailbox() {
        let (mailbox, stop, thread) = mailbox_of_another_thread();
        let (delivered, deliveries) = mpsc::channel();
        let here = std::thread::current().id();
        mailbox.post(Box::new(move || assert_ne!(std::thread::current().id(), here)));
        (0..1_000).for_each(|number| mailbox.post(bundle(number, &delivered)));
        assert!(deliveries.iter().take(1_000).eq(0..1_000));
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn the_mailbox_of_a_thread_that_has_ended_delivers_on_the_spot() {
        let (mailbox, stop, thread) = mailbox_of_another_thread();
        drop(stop);
        thread.join().unwrap();
        let (delivered, deliveries) = mpsc::channel();
        mailbox.post(bundle(7, &delivered));
        assert_eq!(deliveries.try_recv(), Ok(7));
    }

    #[test]
    fn a_mailbox_that_closes_drops_what_it_has_not_delivered() {
        let mailbox = Arc::<Mailbox>::default();
        let emptying = Emptying(mailbox.clone()).run();
        let (delivered, deliveries) = mpsc::channel();
        mailbox.post(bundle(1, &delivered));
        drop(delivered);
        drop(emptying);
        assert_eq!(deliveries.try_recv(), Err(mpsc::TryRecvError::Disconnected), "dropped, not delivered");
    }

    #[test]
    fn a_thread_without_a_mailbox_has_none() {
        std::thread::spawn(|| assert!(Mailbox::of_this_thread().is_none())).join().unwrap();
    }
}
