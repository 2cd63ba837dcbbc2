use router::Timing;
use serde_json::Value;

use super::*;
use crate::testing::{add_model, serving};

async fn look(activity: &Activity, node: &Node) -> Value {
    activity.look(node).await;
    serde_json::from_slice(&activity.json(node).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_shows_what_ended_since_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    add_model(folder.path(), "a", 4, "alpha_us = 2000, beta_us = 100");
    add_model(folder.path(), "b", 4, "alpha_us = 100, beta_us = 100");
    let cores = gpulet::allowed_cores().unwrap();
    let node = serving(folder.path(), &cores[..1], &[("tenants.search.weight", "2")]).await;
    let activity = Activity::default();
    assert_eq!(activity.json(&node).unwrap_err().reason, Reason::ModelNotReady, "before the first look");
    let mut looks = activity.looks();
    let before = look(&activity, &node).await;
    assert!(looks.has_changed().unwrap() && before["models"][0].get("attainment").is_none(), "{before}");
    looks.mark_unchanged();
    let [a, b] = ["a", "b"].map(|name| node.catalog().serving(name).pop().unwrap());
    let ms = Duration::from_millis;
    let timing = Timing { compute: ms(20), batch_rows: 1, leads_batch: true, ..Timing::default() };
    for _ in 0..8 {
        a.statistics.answered(1, &timing, ms(25), Some(true));
    }
    b.statistics.failed(ms(1));
    let view = look(&activity, &node).await;
    assert_eq!((&view["second"]["in_time"], &view["second"]["unanswered"]), (&8.into(), &1.into()));
    let model = |name: &str| {
        let models = view["models"].as_array().unwrap();
        models.iter().find(|model| model["name"] == name).unwrap().clone()
    };
    let (a, b) = (model("a"), model("b"));
    assert_eq!(
        (a["attainment"].as_f64(), a["rate"].as_f64()),
        (Some(1.0), Some(4.0)),
        "8 in two seconds: {a}"
    );
    assert!((20.0..30.0).contains(&a["p50_ms"].as_f64().unwrap()), "{a}");
    assert_eq!(a["batches"].as_array().unwrap().iter().map(|size| size[1].as_u64().unwrap()).sum::<u64>(), 8);
    assert_eq!(b["p99_ms"], Value::Null, "{b}");
    let lane = &view["lanes"][0];
    assert!(
        lane["busy"].as_array().unwrap().iter().any(|share| share[0] == "a" && share[1].as_f64() > Some(0.0))
    );
    let tenants: Vec<&str> =
        view["tenants"].as_array().unwrap().iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
    assert_eq!(tenants, ["default", "search"]);
    assert_eq!(activity.timeline().len(), 2);
    node.catalog().unload("a").await.unwrap();
    let after = look(&activity, &node).await;
    assert_eq!(after["models"].as_array().unwrap().len(), 1, "{after}");
}
