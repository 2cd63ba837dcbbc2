//! Lanes whose thread panics: what clients see, and how the lane restarts.

use std::path::Path;

use gpulet_core::supervision::State;

use crate::node::Node;
use crate::reason::Reason;
use crate::testing::{self, add_model};

async fn serving(folder: &Path, lanes: usize) -> Option<Node> {
    add_model(folder, "m", 4, "alpha_us = 100");
    let cores: Vec<usize> = gpulet::allowed_cores().unwrap().into_iter().take(lanes).collect();
    if cores.len() < lanes {
        return None;
    }
    Some(testing::serving(folder, &cores, &[]).await)
}

async fn ask(node: &Node) -> Result<(), Reason> {
    let right = testing::ask(node, "m", [1.5, 2.5], None).await.map_err(|refusal| refusal.reason)?;
    assert!(right);
    Ok(())
}

/// The lane's thread panics, with a request in its mailbox that was given to it just before.
async fn breaks(node: &Node, lane: usize) -> Result<(), Reason> {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let broken = move |_| {
        let _ = wait.recv();
        panic!("planted");
    };
    node.catalog().lanes()[lane].remove(u32::MAX, broken).unwrap();
    let given = async {
        while node.catalog().router().snapshot().await.unwrap().models[0].in_flight == 0 {
            tokio::task::yield_now().await;
        }
    };
    let mut asked = std::pin::pin!(ask(node));
    let answer = tokio::select! {
        answer = &mut asked => Some(answer),
        () = given => None,
    };
    drop(go);
    match answer {
        Some(answer) => answer,
        None => asked.await,
    }
}

/// Waits until one life of a lane has ended and all lanes are up.
async fn came_back(node: &Node) {
    loop {
        let rows = node.supervisor().view().await.unwrap();
        let deaths: usize = rows.iter().filter_map(|row| Some(row.view.as_ref()?.deaths)).sum();
        assert!(deaths <= 1, "{deaths} deaths of one panic");
        if deaths == 1
            && rows
                .iter()
                .all(|row| row.view.as_ref().is_some_and(|view| matches!(view.state, State::Up { .. })))
        {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_lane_comes_back_and_clients_are_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let node = serving(folder.path(), 1).await.unwrap();
    let reason = breaks(&node, 0).await.unwrap_err();
    assert_eq!(reason, Reason::LaneFailed);
    came_back(&node).await;
    assert_eq!(ask(&node).await, Ok(()));
    assert_eq!(node.not_ready(), None);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_replaced_and_no_client_notices() {
    let folder = tempfile::tempdir().unwrap();
    let Some(node) = serving(folder.path(), 2).await else { return };
    assert_eq!(breaks(&node, 0).await, Ok(()));
    came_back(&node).await;
    assert_eq!(ask(&node).await, Ok(()));
    node.stop().await;
}
