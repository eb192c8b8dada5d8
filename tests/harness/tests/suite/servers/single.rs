use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use idempotent_harness::servers::{RedisServer, SERVER, Value};

const CHILD: &str = "SERVERS_TEST_CHILD";

/// Returns whether the process exists and is not a zombie.
fn exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Path::new(&format!("/proc/{pid}")).exists() && !stat.contains(") Z ")
}

/// Waits until the condition holds, and panics after a minute.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed().as_secs() < 60, "after a minute still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
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
fn with_an_append_only_file_a_kill_loses_nothing_that_was_answered() {
    let server = RedisServer::builder().aof().start();
    server.command(&["SET", "a", "b"]);
    server.kill();
    server.restart();
    assert_eq!(server.command(&["GET", "a"]).text(), "b");
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
