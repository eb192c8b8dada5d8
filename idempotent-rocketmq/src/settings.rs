//! What a source was told.
use std::sync::Arc;

use idempotent_mq::Position;

use crate::SettingError;
use crate::delay_levels::Ladder;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name_servers: String,
    pub(crate) topic: String,
    /// The topic's name, for positions.
    pub(crate) place: Arc<str>,
    pub(crate) group: String,
    /// An expression: `*`, or tags with `||` between them.
    pub(crate) tags: String,
    pub(crate) retry_topic: String,
    pub(crate) dead_topic: String,
    pub(crate) ladder: Ladder,
    /// Messages of one call of the listener.
    pub(crate) batch: usize,
    pub(crate) expires_at_header: Option<String>,
}

/// Of a topic or a group.
const LONGEST: usize = 127;
/// The client's own limits: of threads that wait at once, and of a batch.
pub(crate) const MOST_THREADS: usize = 480;
const LARGEST_BATCH: usize = 1024;

impl Settings {
    pub(crate) fn position(&self) -> Position {
        Position::of(self.place.clone())
    }

    /// Whether a message with this tag is wanted.
    pub(crate) fn wants(&self, tag: Option<&str>) -> bool {
        let mut wanted = self.tags.split("||").map(str::trim);
        wanted.any(|wanted| wanted == "*" || tag.is_some_and(|tag| tag == wanted))
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        check_servers(&self.name_servers)?;
        for (what, name) in [
            ("topic", &self.topic),
            ("group", &self.group),
            ("retry topic", &self.retry_topic),
            ("dead letter topic", &self.dead_topic),
        ] {
            check_name(what, name)?;
        }
        let topics = [&self.topic, &self.retry_topic, &self.dead_topic];
        if topics[0] == topics[1] || topics[1] == topics[2] || topics[0] == topics[2] {
            return Err(SettingError::new("the topic and those for retries and dead letters must be three"));
        }
        if self.retry_topic.starts_with(RETRY) || self.dead_topic.starts_with(RETRY) {
            return Err(SettingError::new(
                "a topic that begins with %RETRY% is the broker's: what is sent there may end in its dead letter queue",
            ));
        }
        if self.batch == 0 || self.batch > LARGEST_BATCH {
            return Err(SettingError::new(format!("the batch is {}, it must be 1 to {LARGEST_BATCH}", self.batch)));
        }
        if self.tags.split("||").any(|tag| tag.trim().is_empty()) {
            return Err(SettingError::new(
                "a tag is empty; `*` takes all messages, `paid || refunded` those of two tags",
            ));
        }
        Ok(())
    }
}

const RETRY: &str = "%RETRY%";

pub(crate) fn check_servers(name_servers: &str) -> Result<(), SettingError> {
    let well = |server: &str| server.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port));
    if !name_servers.split(';').all(well) {
        return Err(SettingError::new("the name servers are written HOST:PORT, several of them HOST:PORT;HOST:PORT"));
    }
    Ok(())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0)
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), SettingError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(allowed) {
        let text =
            format!("the name of a {what} has 1 to {LONGEST} of the characters a-z A-Z 0-9 % | _ - and no others");
        return Err(SettingError::new(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_of_tags_takes_each_of_them_and_a_star_takes_what_has_none() {
        let wants = |tags: &str, tag| crate::retry_headers::tests::settings(tags).wants(tag);
        assert!(wants("paid || refunded", Some("refunded")) && wants("paid||refunded", Some("paid")));
        assert!(!wants("paid || refunded", Some("pai")) && !wants("paid", None));
        assert!(wants("*", None) && wants("*", Some("paid")));
    }

    #[test]
    fn names_that_rocketmq_does_not_take_are_refused_with_the_reason() {
        let servers = |servers| check_servers(servers).is_ok();
        assert!(servers("h:1") && servers("h:1;[::1]:9876") && !servers("h") && !servers("h:0") && !servers(""));
        assert!(check_name("topic", "orders.paid").is_err_and(|mistake| mistake.to_string().contains("of a topic")));
        let mut settings = crate::retry_headers::tests::settings("*");
        assert!(settings.check().is_ok());
        settings.retry_topic = "%RETRY%g".to_owned();
        assert!(settings.check().is_err_and(|mistake| mistake.to_string().contains("the broker's")));
        assert!(crate::retry_headers::tests::settings("a || ").check().is_err());
    }
}
