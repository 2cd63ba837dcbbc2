//! Any sequence of changes and failures leaves a snapshot that is a complete listed state of the source.

use proptest::prelude::*;

use super::*;

const KEYS: [&str; 4] = ["a/1/model.onnx", "a/config.pbtxt", "b/1/model.onnx", "c.onnx"];
const CONTENTS: [&str; 5] = ["", "x", "y", "0123456789", "abcdefghij"];

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize),
    Refresh(Vec<Fault>),
    /// The process dies: the future is dropped after some polls.
    Crash(usize, Vec<Fault>),
    Down(bool),
}

fn fault() -> impl Strategy<Value = Fault> {
    let path = |key: usize| StorePath::from(format!("models/{}", KEYS[key]));
    prop_oneof![
        3 => Just(Fault::None),
        1 => (0_usize..12).prop_map(Fault::Break),
        1 => (0_usize..12).prop_map(Fault::Short),
        1 => Just(Fault::Stall),
        4 => (0..KEYS.len(), 1..CONTENTS.len()).prop_map(move |(key, content)| Fault::Change(path(key), CONTENTS[content])),
        1 => (0..KEYS.len()).prop_map(move |key| Fault::Delete(path(key))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let faults = || prop::collection::vec(fault(), 0..6);
    prop_oneof![
        4 => (0..KEYS.len(), 0..CONTENTS.len()).prop_map(|(key, content)| Step::Put(key, content)),
        1 => (0..KEYS.len()).prop_map(Step::Delete),
        4 => faults().prop_map(Step::Refresh),
        2 => (0_usize..30, faults()).prop_map(|(polls, faults)| Step::Crash(polls, faults)),
        1 => any::<bool>().prop_map(Step::Down),
    ]
}

/// Polls a future some times, then drops it.
async fn poll_some<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut scene = Scene::new();
    scene.limits.bytes_max = 120;
    for step in steps {
        if let Step::Refresh(faults) | Step::Crash(_, faults) = &step {
            scene.store.push(faults.clone());
        }
        let before = scene.content();
        match step {
            Step::Put(key, content) => scene.put(KEYS[key], CONTENTS[content]).await,
            Step::Delete(key) => scene.delete(KEYS[key]).await,
            Step::Down(down) => scene.store.fail_always(down),
            Step::Refresh(_) => match scene.refresh().await {
                Ok(report) => {
                    prop_assert!(report.bytes_cached <= 120, "{report:?}");
                    prop_assert_eq!(Some(scene.content()), scene.store.listed().pop());
                }
                Err(_) => prop_assert_eq!(scene.content(), before),
            },
            Step::Crash(polls, _) => {
                let mirror = scene.mirror();
                poll_some(mirror.refresh(&Silent), polls).await;
                // Work that was running when the future was dropped has the lock.
                mirror.cache.lock(scene.limits.lock_timeout).await.unwrap();
                let content = scene.content();
                prop_assert!(content == before || scene.store.listed().contains(&content), "{content:?}");
            }
        }
        scene.store.clear();
    }
    scene.store.fail_always(false);
    let now = scene.store.state(&StorePath::from("models"));
    if !now.is_empty() {
        scene.refresh().await.unwrap();
        prop_assert_eq!(scene.content(), now);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_is_a_complete_state(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps))?;
    }
}
