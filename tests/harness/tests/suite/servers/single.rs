use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use idempotent_harness::servers::{RedisServer, SERVER, Value};

use crate::servers::{eventually, exists};

const CHILD: &str = "SERVERS_TEST_CHILD";

#[test]
fn a_server_answers_by_its_port_and_by_its_socket() {
    let server = RedisServer::start();
    assert_eq!(server.cli(&["SET", "a", "b"]), "OK");
    assert_eq!(server.command(&["GET", "a"]), Value::Bytes(b"b".to_vec()));
    assert_eq!(server.command(&["GET", "c"]), Value::Nil);
    assert_eq!(server.command(&["INCR", "n"]).integer(), Some(1));
    assert!(server.command(&["GET"]).is_error());
    assert_eq!(server.command(&["MGET", "a", "c"]).items().len(), 2);
    assert_eq!(server.url(), format!("redis://{}", server.address()));
}

#[test]
fn two_at_once_do_not_meet() {
    let [one, other] = [RedisServer::start(), RedisServer::start()];
    assert_ne!(one.port(), other.port());
    one.command(&["SET", "a", "1"]);
    assert_eq!(other.command(&["GET", "a"]), Value::Nil);
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = RedisServer::start();
    let (pid, folder) = (server.pid(), server.command(&["CONFIG", "GET", "dir"]).items()[1].text());
    assert!(exists(pid) && std::fs::exists(&folder).unwrap());
    drop(server);
    assert!(!exists(pid) && !std::fs::exists(&folder).unwrap());
}

#[test]
fn a_paused_server_is_dropped_as_well() {
    let server = RedisServer::start();
    let pid = server.pid();
    server.pause();
    drop(server);
    assert!(!exists(pid));
}

/// Starts a server, prints its process, and waits, as the child of the next test. Does nothing when run as a test.
#[test]
#[allow(clippy::print_stdout, reason = "how it tells its parent")]
fn child_with_a_paused_server() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let server = RedisServer::start();
    let folder = server.command(&["CONFIG", "GET", "dir"]).items()[1].text();
    server.pause();
    println!("\nstarted {} {folder}", server.pid());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_server_goes_with_a_test_that_is_killed() {
    use std::io::{BufRead, BufReader};
    let own = std::env::current_exe().unwrap();
    let arguments = ["servers::single::child_with_a_paused_server", "--exact", "--nocapture"];
    let mut child = Command::new(own);
    let child = child.args(arguments).env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let started = lines.map(Result::unwrap).find_map(|line| Some(line.strip_prefix("started ")?.to_owned())).unwrap();
    let (pid, folder) = started.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(exists(pid));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the server is gone", || !exists(pid));
    eventually("its folder is gone", || !std::fs::exists(folder).unwrap());
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let server = RedisServer::start();
    server.pause();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.command(&["SET", "a", "b"]));
        // No event shows that an answer is missing. The test only verifies that the call has not ended when the server
        // resumes.
        assert!(server.is_running() && !answer.is_finished());
        server.resume();
        assert_eq!(answer.join().unwrap().text(), "OK");
    });
}

#[test]
fn a_killed_server_is_gone_until_it_is_restarted_where_it_was() {
    let server = RedisServer::start();
    let (pid, address) = (server.pid(), server.address());
    server.command(&["SET", "a", "b"]);
    server.kill();
    assert!(!server.is_running() && !exists(pid));
    assert!(TcpStream::connect(&address).is_err());
    server.try_command(&["PING"]).unwrap_err();
    server.restart();
    assert_eq!((server.address(), server.command(&["GET", "a"])), (address, Value::Nil));
    assert_ne!(server.pid(), pid);
}

#[test]
fn with_an_append_only_file_a_kill_loses_nothing_that_was_answered() {
    let server = RedisServer::builder().aof().start();
    server.command(&["SET", "a", "b"]);
    server.kill();
    server.restart();
    assert_eq!(server.command(&["GET", "a"]).text(), "b");
}

#[test]
fn arguments_go_to_the_server() {
    let server = RedisServer::builder().arg("--maxmemory").arg("7mb").start();
    assert_eq!(server.info("maxmemory"), (7 << 20).to_string());
}

#[test]
fn a_password_is_asked_for_and_is_in_the_url() {
    let server = RedisServer::builder().password("open-sesame").start();
    assert!(server.url().starts_with("redis://:open-sesame@127.0.0.1:"));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    assert_eq!(server.cli(&["PING"]), "PONG");
    let stranger = Command::new("redis-cli").args(["-p", &server.port().to_string(), "PING"]).output().unwrap();
    assert!(String::from_utf8_lossy(&stranger.stdout).starts_with("NOAUTH"));
}

#[test]
fn a_shifted_clock_is_the_servers_time_and_expiry_and_can_be_shifted_back() {
    let server = RedisServer::builder().faketime().start();
    // The TTL is longer than each shift: a server that looks for expired keys must not remove this one.
    server.command(&["SET", "a", "b", "EX", "7200"]);
    for seconds in [0.0, 3600.0, -3600.5, 60.0] {
        server.shift_clock(seconds);
        let (before, told) = (now(), time(&server));
        // The server's time is between two readings of the test's clock.
        assert!((before - 0.01..=now() + 0.01).contains(&(told - seconds)), "{told} is not {before} + {seconds}");
    }
    assert_eq!(server.command(&["GET", "a"]).text(), "b");
    server.shift_clock(7201.0);
    assert_eq!(server.command(&["GET", "a"]), Value::Nil);
}

#[test]
fn a_shifted_clock_survives_a_restart() {
    let server = RedisServer::builder().faketime().start();
    server.shift_clock(7200.0);
    server.restart();
    assert!(time(&server) > now() + 7000.0);
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

fn time(server: &RedisServer) -> f64 {
    let time = server.command(&["TIME"]);
    let [seconds, micros] = time.items() else { panic!("{time:?}") };
    let micros = u64::try_from(micros.integer().unwrap()).unwrap();
    let seconds = u64::try_from(seconds.integer().unwrap()).unwrap();
    (Duration::from_secs(seconds) + Duration::from_micros(micros)).as_secs_f64()
}

#[test]
fn a_server_that_is_not_installed_says_what_to_do() {
    let why = panic_of(|| RedisServer::builder().binary("redis-server-of-nowhere").start());
    assert!(why.contains("`redis-server-of-nowhere` is not installed") && why.contains("cargo xtask setup"), "{why}");
}

#[test]
fn a_server_that_refuses_its_arguments_says_why() {
    let why = panic_of(|| RedisServer::builder().arg("--no-such-setting").arg("1").start());
    assert!(why.contains("no-such-setting"), "{why}");
}

fn panic_of<T>(run: impl FnOnce() -> T + std::panic::UnwindSafe) -> String {
    *std::panic::catch_unwind(run).map(|_| ()).unwrap_err().downcast::<String>().unwrap()
}

/// Compares the version of the server with the one that `cargo xtask test extras` expects, or with the output of
/// the program.
#[test]
fn the_server_is_of_the_flavour_and_version_that_was_asked_for() {
    let version = RedisServer::start().version();
    let wanted = std::env::var("IDEMPOTENT_REDIS_VERSION").unwrap_or_else(|_| {
        let program = std::env::var(SERVER).unwrap_or_else(|_| "redis-server".to_owned());
        let told = Command::new(program).arg("--version").output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap().to_lowercase();
        // `Redis server v=7.0.15 sha=…`
        let (flavour, number) = (told.split(' ').next().unwrap(), told.split("v=").nth(1).unwrap());
        format!("{flavour} {}", number.split(' ').next().unwrap())
    });
    assert!(version == wanted || version.starts_with(&format!("{wanted}.")), "{version} is not {wanted}");
}
