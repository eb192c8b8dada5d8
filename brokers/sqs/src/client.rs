//! Clients of programs that are configured by one URL.
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use idempotent_mq::{SourceError, UrlForm, UrlParameter};

use crate::error::fatal;

/// The form of the URLs of Amazon SQS.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "Amazon SQS",
    schemes: &["sqs"],
    tls: None,
    form: "sqs://REGION",
    parameters: &[UrlParameter::new(
        "endpoint",
        "URL",
        "another server, such as an emulator, by default the one of the region",
    )],
};

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
    let parsed = URL_FORM.parse(url)?;
    let endpoint = parsed.parameter("endpoint");
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_url = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    let is_bare = parsed.user().is_none() && ["", "/"].contains(&parsed.path()) && endpoint.is_none_or(is_url);
    let ([region], true) = (parsed.hosts(), is_bare && parsed.hosts().iter().all(|host| host.bytes().all(is_valid)))
    else {
        let rule = "use `sqs://REGION` or `sqs://REGION?endpoint=URL`, such as `sqs://eu-west-1`";
        return Err(URL_FORM.error(url, rule).into());
    };
    let key = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
    let emulated = endpoint.map(|_| ("test".to_owned(), "test".to_owned()));
    let Some((key, secret)) = key.or(emulated) else {
        let remedy = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN for a role; \
                      `aws configure export-credentials --format env` prints them";
        return Err(fatal(&format!("opening `{url}`"), remedy));
    };
    let credentials = Credentials::new(key, secret, variable("AWS_SESSION_TOKEN"), None, "environment");
    let config = Config::builder().behavior_version(BehaviorVersion::latest()).region(Region::new(region.to_owned()));
    let mut config = config.credentials_provider(credentials);
    config.set_endpoint_url(endpoint.map(str::to_owned));
    Ok(Client::from_conf(config.build()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_region_and_possibly_an_endpoint() {
        let key = |_: &str| Some("key".to_owned());
        for (url, region) in [
            ("sqs://eu-west-1", "eu-west-1"),
            ("sqs://us-gov-east-1/", "us-gov-east-1"),
            ("sqs://eu-west-1?endpoint=http://127.0.0.1:5000", "eu-west-1"),
        ] {
            let client = of_environment(url, key).unwrap();
            assert_eq!(client.config().region(), Some(&Region::new(region)));
        }
        let bad = ["", "sqs://", "sqs://127.0.0.1:5000", "sqs://eu-west-1/orders", "https://eu-west-1", "sqs://a,b"];
        for url in bad.into_iter().chain(["sqs://ann@eu-west-1", "sqs://eu-west-1?endpoint=localhost"]) {
            let error = of_environment(url, key).unwrap_err().to_string();
            assert!(error.contains("use `sqs://REGION`"), "{error}");
        }
        let unknown = of_environment("sqs://eu-west-1?endpoit=http://a", key).unwrap_err().to_string();
        assert!(unknown.contains("did you mean `endpoint`?"), "{unknown}");
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
