//! The sessions of logged-in users, in memory.
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::User;
use crate::random;

/// The longest time of a session.
const LONGEST: Duration = Duration::from_secs(8 * 3_600);
/// The longest time without a request.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The largest number of sessions. A further login ends the session that was unused for the longest time.
const MOST: usize = 1_000;

/// The open sessions, by the hash of their cookie.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

#[derive(Debug)]
struct Session {
    user: User,
    opened: Instant,
    used: Instant,
}

impl Session {
    fn is_live(&self, now: Instant) -> bool {
        now - self.opened < LONGEST && now - self.used < IDLE
    }
}

impl Sessions {
    /// Opens a session and returns the value of its cookie.
    pub(crate) fn open(&self, user: User) -> Result<String, getrandom::Error> {
        let (cookie, now) = (random::hex()?, Instant::now());
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| session.is_live(now));
        let oldest = sessions.iter().min_by_key(|(_, session)| session.used).map(|(hash, _)| *hash);
        if let Some(oldest) = oldest.filter(|_| sessions.len() >= MOST) {
            sessions.remove(&oldest);
        }
        sessions.insert(hash(&cookie), Session { user, opened: now, used: now });
        Ok(cookie)
    }

    /// Returns the user of a session that is open, and extends the session.
    pub(crate) fn user(&self, cookie: &str) -> Option<User> {
        let now = Instant::now();
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get_mut(&hash(cookie)).filter(|session| session.is_live(now))?;
        session.used = now;
        Some(session.user.clone())
    }

    /// Ends a session.
    pub(crate) fn close(&self, cookie: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash(cookie));
    }
}

fn hash(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Role;

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_by_logout_by_idle_time_and_by_age() {
        let sessions = Sessions::default();
        let ann = User::new("ann", Role::Viewer);
        let cookie = sessions.open(ann.clone()).unwrap();
        assert_eq!((sessions.user(&cookie), sessions.user("other")), (Some(ann.clone()), None));
        sessions.close(&cookie);
        assert_eq!(sessions.user(&cookie), None);

        let cookie = sessions.open(ann.clone()).unwrap();
        tokio::time::advance(IDLE).await;
        assert_eq!(sessions.user(&cookie), None);

        let cookie = sessions.open(ann).unwrap();
        let step = IDLE - Duration::from_secs(1);
        let steps = (LONGEST.as_secs() / step.as_secs()) as u32;
        for _ in 0..steps {
            tokio::time::advance(step).await;
            assert!(sessions.user(&cookie).is_some());
        }
        tokio::time::advance(LONGEST - steps * step).await;
        assert_eq!(sessions.user(&cookie), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_sessions_is_bounded() {
        let sessions = Sessions::default();
        let first = sessions.open(User::new("ann", Role::Viewer)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..MOST {
            sessions.open(User::new("bob", Role::Viewer)).unwrap();
        }
        assert_eq!((sessions.user(&first), sessions.0.lock().unwrap().len()), (None, MOST));
    }
}
