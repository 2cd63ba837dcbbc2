//! Decisions about requests with literal times.

use proptest::prelude::*;

use super::*;
use crate::context::Parent;
use crate::ids::{IdSource, SpanId, TraceId};

fn number(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

/// A request that no cause applies to: the low half of its trace id is the largest.
fn unremarkable(outcome: Outcome) -> Ended<'static> {
    Ended {
        model: "m",
        outcome,
        total: Duration::from_millis(10),
        trace_id: TraceId::new(u128::MAX).unwrap(),
        parent: None,
    }
}

fn parent(sampled: bool) -> Option<Parent> {
    Some(Parent { span_id: SpanId::new(1).unwrap(), sampled })
}

#[test]
fn refused_failed_and_late_requests_are_kept() {
    let mut sampler = Sampler::new(number(100), number(10));
    let cases = [
        (Outcome::Refused, Decision::Keep(Cause::Refused)),
        (Outcome::Failed, Decision::Keep(Cause::Failed)),
        (Outcome::Late, Decision::Keep(Cause::Late)),
        (Outcome::InTime, Decision::Drop),
        (Outcome::Cancelled, Decision::Drop),
    ];
    for (outcome, expected) in cases {
        assert_eq!(sampler.decide(Duration::ZERO, &unremarkable(outcome)), expected);
        let unsampled = Ended { parent: parent(false), ..unremarkable(outcome) };
        assert_eq!(sampler.decide(Duration::ZERO, &unsampled), expected);
    }
}

#[test]
fn an_overload_is_limited_by_cause() {
    let mut sampler = Sampler::new(number(100), number(10));
    let mut decide =
        |millis: u64, request: Ended<'_>| sampler.decide(Duration::from_millis(millis), &request);
    for _ in 0..10 {
        assert_eq!(decide(0, unremarkable(Outcome::Refused)), Decision::Keep(Cause::Refused));
    }
    assert_eq!(decide(0, unremarkable(Outcome::Refused)), Decision::Limited(Cause::Refused));
    assert_eq!(decide(0, unremarkable(Outcome::Late)), Decision::Keep(Cause::Late));
    let sampled = Ended { parent: parent(true), ..unremarkable(Outcome::Refused) };
    assert_eq!(decide(0, sampled), Decision::Keep(Cause::Parent));
    assert_eq!(decide(100, unremarkable(Outcome::Refused)), Decision::Keep(Cause::Refused));
}

#[test]
fn the_parent_decides_about_the_others() {
    let mut sampler = Sampler::new(number(1), number(10));
    let mut decide =
        |parent| sampler.decide(Duration::ZERO, &Ended { parent, ..unremarkable(Outcome::InTime) });
    assert_eq!(decide(parent(true)), Decision::Keep(Cause::Parent));
    assert_eq!(decide(parent(false)), Decision::Drop);
    assert_eq!(decide(None), Decision::Keep(Cause::Ratio));
}

#[test]
fn one_in_n_by_trace_id() {
    let ids = IdSource::new([1, 2]);
    let mut sampler = Sampler::new(number(10), number(1_000_000));
    let mut again = sampler.clone();
    let mut kept = 0;
    for _ in 0..10_000 {
        let request = Ended { trace_id: ids.trace_id(), ..unremarkable(Outcome::InTime) };
        let decision = sampler.decide(Duration::ZERO, &request);
        assert_eq!(again.decide(Duration::ZERO, &request), decision);
        kept += u32::from(decision == Decision::Keep(Cause::Ratio));
    }
    assert!((900..1100).contains(&kept), "{kept}");
}

#[test]
fn the_slowest_of_each_model_are_kept() {
    let mut sampler = Sampler::new(number(100), number(10));
    let request = |model, millis| Ended {
        model,
        total: Duration::from_millis(millis),
        ..unremarkable(Outcome::InTime)
    };
    for _ in 0..1000 {
        sampler.decide(Duration::ZERO, &request("fast", 1));
        sampler.decide(Duration::ZERO, &request("slow", 100));
    }
    assert_eq!(sampler.decide(Duration::ZERO, &request("slow", 100)), Decision::Drop);
    assert_eq!(sampler.decide(Duration::ZERO, &request("fast", 100)), Decision::Keep(Cause::Slow));
}

#[test]
fn models_are_bounded_and_idle_ones_are_forgotten() {
    let mut sampler = Sampler::new(number(100), number(10));
    for model in 0..2 * MODELS_MAX {
        let name = format!("m{model}");
        sampler.decide(Duration::ZERO, &Ended { model: &name, ..unremarkable(Outcome::InTime) });
    }
    assert_eq!(sampler.models.len(), MODELS_MAX);
    sampler.decide(IDLE - SEARCH_PERIOD, &unremarkable(Outcome::InTime));
    assert_eq!(sampler.models.len(), MODELS_MAX);
    sampler.decide(IDLE, &unremarkable(Outcome::InTime));
    assert_eq!(sampler.models.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["m"]);
}

proptest! {
    #[test]
    fn the_limit_holds_for_any_requests(
        requests in prop::collection::vec((0..2000u64, 0..5usize, any::<u128>(), any::<Option<bool>>()), 0..400),
    ) {
        let outcomes =
            [Outcome::InTime, Outcome::Late, Outcome::Refused, Outcome::Failed, Outcome::Cancelled];
        let mut sampler = Sampler::new(number(3), number(5));
        let mut requests = requests;
        requests.sort_by_key(|(millis, ..)| *millis);
        let mut kept = 0;
        for (millis, outcome, trace, sampled) in requests {
            let request = Ended {
                outcome: outcomes[outcome],
                trace_id: TraceId::new(trace.max(1)).unwrap(),
                parent: sampled.and_then(parent),
                ..unremarkable(Outcome::InTime)
            };
            let decision = sampler.decide(Duration::from_millis(millis), &request);
            kept += usize::from(matches!(decision, Decision::Keep(_)));
        }
        // Two seconds and the tokens of the first, for each cause.
        prop_assert!(kept <= Cause::ALL.len() * 5 * 3);
    }
}
