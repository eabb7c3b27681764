//! Locks for state that threads share. A panic while a thread may change such state ends the process after a line in
//! the log, because half-changed state must not be served. So no caller meets a poisoned lock.
//!
//! A panic that was already under way when the lock was taken changes nothing: the holder is a destructor, and it
//! finishes. A panic under a [`ReadGuard`] changes nothing either.

use std::any::type_name;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, Mutex, MutexGuard, RwLock, RwLockWriteGuard, TryLockError};
use std::thread::panicking;

pub use std::sync::RwLockReadGuard as ReadGuard;

/// State that one thread at a time has.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

/// State that either one thread changes, or many threads read.
#[derive(Debug, Default)]
pub struct SharedLock<T>(RwLock<T>);

/// The right to change the state of a lock. When this is dropped, the lock is free. A panic that drops it ends the
/// process first; the lock stays taken until then.
#[derive(Debug)]
#[must_use = "the lock is free as soon as this is dropped"]
pub struct ChangeGuard<G: DerefMut> {
    state: G,
    /// The thread was already unwinding when it took the lock.
    was_panicking: bool,
}

/// The guard of a [`Lock`].
pub type LockGuard<'l, T> = ChangeGuard<MutexGuard<'l, T>>;

/// The guard of a [`SharedLock`] with which a thread changes the state.
pub type WriteGuard<'l, T> = ChangeGuard<RwLockWriteGuard<'l, T>>;

impl<T> Lock<T> {
    /// Makes a lock that is free.
    pub const fn new(state: T) -> Self {
        Lock(Mutex::new(state))
    }

    /// Takes the lock. Waits until it is free.
    pub fn lock(&self) -> LockGuard<'_, T> {
        ChangeGuard::new(whole(self.0.lock()))
    }

    /// Takes the lock if it is free. `None` = a thread has it.
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(state) => Some(ChangeGuard::new(state)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => end(type_name::<T>()),
        }
    }
}

impl<T> SharedLock<T> {
    /// Makes a lock that is free.
    pub const fn new(state: T) -> Self {
        SharedLock(RwLock::new(state))
    }

    /// Takes the lock to read the state. Waits until no thread may change it.
    pub fn read(&self) -> ReadGuard<'_, T> {
        whole(self.0.read())
    }

    /// Takes the lock to change the state. Waits until no other thread reads or changes it.
    pub fn write(&self) -> WriteGuard<'_, T> {
        ChangeGuard::new(whole(self.0.write()))
    }

    /// The state. No other thread can have the lock meanwhile.
    pub fn get_mut(&mut self) -> &mut T {
        whole(self.0.get_mut())
    }
}

impl<G: DerefMut> ChangeGuard<G> {
    fn new(state: G) -> Self {
        ChangeGuard { state, was_panicking: panicking() }
    }
}

impl<G: DerefMut> Deref for ChangeGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.state
    }
}

impl<G: DerefMut> DerefMut for ChangeGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.state
    }
}

impl<G: DerefMut> Drop for ChangeGuard<G> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            end(type_name::<G::Target>());
        }
    }
}

/// The state of a lock. A [`ChangeGuard`] ends the process before the standard library marks the state as half changed.
fn whole<G: Deref>(state: LockResult<G>) -> G {
    state.unwrap_or_else(|_| end(type_name::<G::Target>()))
}

/// Ends the process. `part`: the type of the state.
#[cold]
fn end(part: &str) -> ! {
    tracing::error!(part, "a fault of the server in state that threads share: the process ends");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Output};
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// The variable of a child process that runs a test and meets a fault in it.
    const FAULT: &str = "FAULT_OF_A_TEST";
    const SIGABRT: i32 = 6;

    /// Runs a test of this module in a process of its own, with a fault. `None` = this is that process.
    fn with_fault(test: &str) -> Option<Output> {
        if std::env::var_os(FAULT).is_some() {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            return None;
        }
        let mut child = Command::new(std::env::current_exe().expect("a path"));
        let child = child.args(["--exact", &format!("tests::{test}"), "--nocapture"]).env(FAULT, "1");
        Some(child.output().expect("it runs"))
    }

    /// Checks that a process has logged one line and then ended itself.
    fn has_ended_itself(output: &Output) {
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{told}");
        assert_eq!(told.matches("the process ends").count(), 1, "{told}");
        assert!(told.contains("touchline_lock::tests::Pair"), "it names the state: {told}");
    }

    /// State whose two numbers are equal, except while it changes.
    #[derive(Debug, Default, PartialEq)]
    struct Pair(u32, u32);

    impl Pair {
        fn half_change(&mut self) {
            self.0 += 1;
            panic!("a fault that this test has put in");
        }

        fn change(&mut self) {
            self.0 += 1;
            self.1 += 1;
        }
    }

    /// Changes the state when it is dropped, also by a panic.
    struct ChangesAtEnd(Arc<(Lock<Pair>, SharedLock<Pair>)>);

    impl Drop for ChangesAtEnd {
        fn drop(&mut self) {
            self.0.0.lock().change();
            self.0.1.write().change();
        }
    }

    #[test]
    fn a_panic_under_a_lock_ends_the_process() {
        if let Some(output) = with_fault("a_panic_under_a_lock_ends_the_process") {
            return has_ended_itself(&output);
        }
        let pair = Arc::new(Lock::<Pair>::default());
        let other = Arc::clone(&pair);
        let ended = thread::spawn(move || other.lock().half_change()).join();
        panic!("the process goes on: {ended:?}, {pair:?}");
    }

    #[test]
    fn a_panic_under_a_lock_that_was_free_ends_the_process() {
        if let Some(output) = with_fault("a_panic_under_a_lock_that_was_free_ends_the_process") {
            return has_ended_itself(&output);
        }
        let pair = Lock::<Pair>::default();
        let caught = std::panic::catch_unwind(|| pair.try_lock().expect("it is free").half_change());
        panic!("the process goes on: {caught:?}, {pair:?}");
    }

    #[test]
    fn a_panic_of_a_writer_ends_the_process() {
        if let Some(output) = with_fault("a_panic_of_a_writer_ends_the_process") {
            return has_ended_itself(&output);
        }
        let pair = SharedLock::<Pair>::default();
        let caught = std::panic::catch_unwind(|| pair.write().half_change());
        panic!("the process goes on: {caught:?}, {pair:?}");
    }

    #[test]
    fn a_panic_of_a_reader_harms_nothing() {
        let mut pair = SharedLock::new(Pair(1, 1));
        let caught = std::panic::catch_unwind(|| {
            let read = pair.read();
            panic!("a fault that this test has put in, at {}", read.0);
        });
        assert!(caught.is_err());
        pair.write().change();
        assert_eq!(*pair.read(), Pair(2, 2));
        assert_eq!(*pair.get_mut(), Pair(2, 2));
    }

    #[test]
    fn a_panic_without_a_lock_harms_nothing() {
        let both = Arc::new((Lock::<Pair>::default(), SharedLock::<Pair>::default()));
        let other = Arc::clone(&both);
        let ended = thread::spawn(move || {
            let _changes = ChangesAtEnd(Arc::clone(&other));
            // The guards are gone before the panic. The next ones are taken by it.
            other.0.lock().change();
            other.1.write().change();
            panic!("a fault that this test has put in");
        });
        assert!(ended.join().is_err());
        assert_eq!(*both.0.lock(), Pair(2, 2));
        assert_eq!(*both.1.read(), Pair(2, 2));
    }

    #[test]
    fn a_lock_that_is_taken_is_not_waited_for() {
        let lock = Lock::new(1);
        let taken = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(taken);
        assert_eq!(lock.try_lock().as_deref(), Some(&1));
    }
}
