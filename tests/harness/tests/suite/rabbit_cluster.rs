//! Tests of the private RabbitMQ cluster.
mod extras {
    use idempotent_harness::servers::{RabbitCluster, RabbitServer};

    use crate::servers::{eventually, exists};

    const QUEUE: &str = "of this test";

    fn pids(cluster: &RabbitCluster) -> Vec<u32> {
        cluster.nodes().iter().map(RabbitServer::pid).collect()
    }

    #[test]
    fn a_private_rabbitmq_cluster_elects_another_leader_and_takes_a_killed_node_back() {
        let cluster = RabbitCluster::start();
        cluster.node(1).eval(&format!(
            "{{new, _}} = rabbit_amqqueue:declare(rabbit_misc:r(<<\"/\">>, queue, <<\"{QUEUE}\">>), true, false, \
             [{{<<\"x-queue-type\">>, longstr, <<\"quorum\">>}}], none, <<\"a test\">>), \"done\"."
        ));
        eventually("all replicas are online", || cluster.replicas(QUEUE).online == [0, 1, 2]);
        let first = cluster.replicas(QUEUE);
        assert_eq!(first.members, [0, 1, 2]);
        let leader = first.leader.unwrap();
        let (address, before) = (cluster.node(leader).address(), pids(&cluster));
        cluster.node(leader).kill();
        eventually("another leader", || cluster.replicas(QUEUE).leader.is_some_and(|index| index != leader));
        let second = cluster.replicas(QUEUE);
        assert_eq!((second.members, second.online.len()), (vec![0, 1, 2], 2));
        assert!(!second.online.contains(&leader));

        cluster.restart_killed();
        eventually("all replicas are online again", || cluster.replicas(QUEUE).online == [0, 1, 2]);
        assert_eq!(cluster.node(leader).address(), address);
        let after = pids(&cluster);
        assert_eq!((0..3).filter(|node| before[*node] != after[*node]).collect::<Vec<_>>(), [leader]);
        drop(cluster);
        assert!(!before.into_iter().chain(after).any(exists));
    }
}
