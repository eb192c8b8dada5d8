//! Tests of the private RabbitMQ server.
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use idempotent_harness::servers::RabbitServer;

use crate::servers::eventually;

/// Returns whether the server answers the greeting of a client.
fn speaks(server: &RabbitServer) -> bool {
    let Ok(mut stream) = TcpStream::connect(server.address()) else { return false };
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut first = [0];
    stream.write_all(b"AMQP\x00\x00\x09\x01").and_then(|()| stream.read_exact(&mut first)).is_ok() && first[0] == 1
}

/// Returns the processes whose environment names this server's port mapper. None may outlive the server.
fn processes(mapper: &str) -> Vec<String> {
    let name = format!("ERL_EPMD_PORT={mapper}");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let environment = |pid: &str| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let ours = |pid: &String| environment(pid).split(|byte| *byte == 0).any(|one| one == name.as_bytes());
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(ours).collect()
}

fn mapper_of(pid: u32) -> String {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    let port = environment.split('\0').find_map(|one| one.strip_prefix("ERL_EPMD_PORT="));
    port.unwrap().to_owned()
}

fn vhosts(server: &RabbitServer) -> String {
    server.eval("lists:flatten([binary_to_list(Name) ++ \";\" || Name <- rabbit_vhost:list_names()]).")
}

#[test]
fn a_private_rabbitmq_answers_its_tools_and_leaves_no_process_or_file() {
    let server = RabbitServer::start();
    eventually("it speaks", || speaks(&server));
    assert!(server.is_running());
    assert!(server.url().starts_with("amqp://guest:guest@127.0.0.1:") && server.url().ends_with("/%2f"));
    server.add_vhost("of this test");
    assert!(server.ctl(&["list_vhosts", "name"]).contains("of this test"));
    let mapper = mapper_of(server.pid());
    assert!(processes(&mapper).contains(&server.pid().to_string()));

    server.pause();
    assert!(!speaks(&server) && server.is_running());
    server.resume();
    eventually("it speaks again", || speaks(&server));

    let (pid, address) = (server.pid(), server.address());
    server.sync();
    server.kill();
    assert!(!speaks(&server) && !server.is_running());
    server.restart();
    eventually("it speaks after its restart", || speaks(&server));
    assert!(server.address() == address && server.pid() != pid);
    assert_eq!(server.queues("of this test", "messages"), BTreeMap::new());
    assert!(vhosts(&server).contains("of this test"), "what is durable outlives a kill");

    drop(server);
    // The helpers of the Erlang machine end a moment later, when their pipe is closed.
    eventually("nothing of it is left", || processes(&mapper).is_empty());
    // The server started no port mapper on the default port.
    let names = Command::new("epmd").args(["-port", &mapper, "-names"]).output().unwrap();
    assert!(!names.status.success(), "{names:?}");
}
