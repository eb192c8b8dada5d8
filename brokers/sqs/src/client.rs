//! Clients of programs that are configured by one URL.
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use idempotent_mq::SourceError;

use crate::error::fatal;

/// Creates a client from the URL `sqs://REGION` and the credentials in the environment, for a program that is configured by a URL.
///
/// The credentials are in the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a role, `AWS_SESSION_TOKEN`. The command
/// `aws configure export-credentials --format env` prints them for any profile. Use the crate `aws-config` instead in a service that runs
/// for longer than its credentials are valid.
///
/// The URL `sqs://REGION?endpoint=URL` names another server, such as an emulator. Without the variables, such a client has the credentials
/// `test`, which emulators accept.
///
/// ```
/// let client = idempotent_sqs::client("sqs://eu-west-1?endpoint=http://127.0.0.1:5000")?;
/// # let _ = client;
/// # Ok::<_, idempotent_mq::SourceError>(())
/// ```
///
/// # Errors
/// `Fatal`: the URL is invalid, or a variable is missing.
pub fn client(url: &str) -> Result<Client, SourceError> {
    of_environment(url, |name| std::env::var(name).ok())
}

fn of_environment(url: &str, read: impl Fn(&str) -> Option<String>) -> Result<Client, SourceError> {
    let variable = |name: &str| read(name).filter(|value| !value.is_empty());
    let doing = || format!("parsing the URL `{url}`");
    let Some((region, endpoint)) = parse(url) else {
        return Err(fatal(&doing(), "use `sqs://REGION` or `sqs://REGION?endpoint=URL`, such as `sqs://eu-west-1`"));
    };
    let key = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
    let emulated = endpoint.map(|_| ("test".to_owned(), "test".to_owned()));
    let Some((key, secret)) = key.or(emulated) else {
        let remedy = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN for a role; \
                      `aws configure export-credentials --format env` prints them";
        return Err(fatal(&doing(), remedy));
    };
    let credentials = Credentials::new(key, secret, variable("AWS_SESSION_TOKEN"), None, "environment");
    let config = Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new(region.to_owned()));
    let mut config = config.credentials_provider(credentials);
    config.set_endpoint_url(endpoint.map(str::to_owned));
    Ok(Client::from_conf(config.build()))
}

/// Returns the region and the endpoint.
fn parse(url: &str) -> Option<(&str, Option<&str>)> {
    let rest = url.strip_prefix("sqs://")?;
    let (region, query) = rest.split_once('?').map_or((rest, None), |(region, query)| (region, Some(query)));
    let region = region.trim_end_matches('/');
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let endpoint = match query {
        Some(query) => Some(query.strip_prefix("endpoint=")?),
        None => None,
    };
    let is_url = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    (!region.is_empty() && region.bytes().all(is_valid) && endpoint.is_none_or(is_url)).then_some((region, endpoint))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_region_and_possibly_an_endpoint() {
        assert_eq!(parse("sqs://eu-west-1"), Some(("eu-west-1", None)));
        assert_eq!(parse("sqs://us-gov-east-1/"), Some(("us-gov-east-1", None)));
        let endpoint = Some("http://127.0.0.1:5000");
        assert_eq!(parse("sqs://eu-west-1?endpoint=http://127.0.0.1:5000"), Some(("eu-west-1", endpoint)));
        let bad = ["", "sqs://", "sqs://127.0.0.1:5000", "sqs://eu-west-1/orders", "https://eu-west-1"];
        for url in bad.into_iter().chain(["sqs://eu-west-1?queue=a", "sqs://eu-west-1?endpoint=localhost"]) {
            let error = of_environment(url, |_| None).unwrap_err().to_string();
            assert!(error.contains("use `sqs://REGION`"), "{error}");
        }
    }

    #[test]
    fn credentials_are_required_except_for_an_endpoint() {
        for value in [None, Some(String::new())] {
            let error = of_environment("sqs://eu-west-1", |_| value.clone()).unwrap_err().to_string();
            assert!(error.contains("set AWS_ACCESS_KEY_ID"), "{error}");
        }
        let of = |url: &str, value: Option<&str>| of_environment(url, |_| value.map(str::to_owned)).unwrap();
        assert_eq!(of("sqs://eu-west-1", Some("key")).config().region(), Some(&Region::new("eu-west-1")));
        of("sqs://eu-west-1?endpoint=http://127.0.0.1:5000", None);
    }
}
