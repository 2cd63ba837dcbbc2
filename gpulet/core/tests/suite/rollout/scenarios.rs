//! One scenario for each event that can occur during a rollout.

use gpulet_core::plan::Gpulet;
use gpulet_core::rollout::{Effect, EntryKind, Epoch, Event, Outcome, ProposalId, Refusal};

use super::plans::{gpulet, problem, slot};
use super::script::{Script, all_steps, id, incidents, needs_a_plan, outcomes, step, steps, switch};

fn see(device: &str, first_unit: u32, units: u32, batch: u32) -> Gpulet {
    gpulet(device, first_unit, units, vec![slot("see", batch, 50.0)])
}

fn ask(device: &str, first_unit: u32, units: u32, batch: u32) -> Gpulet {
    gpulet(device, first_unit, units, vec![slot("ask", batch, 20.0)])
}

fn no(step: gpulet_core::rollout::StepId) -> Event {
    Event::StepFailed { step, reason: "no".to_owned() }
}

/// A script with this plan in force.
fn with(gpulets: Vec<Gpulet>) -> Script {
    let mut script = Script::new(problem(10_000));
    script.reach(gpulets);
    assert!(script.machine.is_idle());
    script
}

#[test]
fn each_device_loads_everything_then_verifies_it_and_all_are_switched_together() {
    let mut script = Script::new(problem(10_000));
    let both =
        gpulet("gpu0", 0, 4, vec![slot("ask", 2, 5.0), slot("ask-again", 4, 5.0), slot("see", 1, 5.0)]);
    let all = script.reach(vec![both, see("gpu1", 0, 8, 8)]);
    assert_eq!(
        steps(&all),
        [
            "open 0.1",
            "open 0.2",
            "prepare 0.1 bert 4",
            "prepare 0.2 resnet 8",
            "prepare 0.1 resnet 1",
            "verify 0.2 resnet 8",
            "verify 0.1 bert 4",
            "verify 0.1 resnet 1",
            "switch 1",
        ]
    );
    assert_eq!(outcomes(&all), [(1, Outcome::Done)]);
    let table = switch(&all);
    let routes: Vec<(&str, usize)> =
        table.routes.iter().map(|route| (route.workload.as_str(), route.slots.len())).collect();
    assert_eq!(routes, [("ask", 1), ("ask-again", 1), ("see", 2)]);
    assert_eq!((table.draining.len(), table.active.len(), table.is_rollback), (0, 2, false));
}

#[test]
fn a_step_that_fails_waits_for_those_of_other_devices_and_then_everything_is_closed() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 4, 2), see("gpu1", 0, 8, 2), ask("gpu2", 0, 8, 2)]);
    let asked: Vec<_> = all_steps(&effects).map(|(id, _)| id).collect();
    let [bad, good] = asked[..] else { panic!("{asked:?}") };
    assert!(script.tell(no(bad)).iter().all(|effect| matches!(effect, Effect::CannotOpen { .. })));
    let effects = script.tell(Event::StepDone(good));
    let all = script.carry_out(effects);
    assert_eq!(steps(&all), ["close 1.1", "close 1.2"]);
    assert!(
        matches!(&outcomes(&all)[..], [(2, Outcome::Failed { reason })] if reason.contains("opened failed"))
    );
    assert_eq!(script.ids(), ["0.1"]);
}

#[test]
fn a_plan_that_is_in_force_changes_nothing() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 4, 2)]);
    assert_eq!((outcomes(&effects), effects.len()), (vec![(2, Outcome::Unchanged)], 1));
    assert_eq!(script.machine.epoch(), Epoch(1));
}

#[test]
fn the_empty_plan_closes_everything() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let all = script.reach(Vec::new());
    assert_eq!(steps(&all), ["switch 2", "drop 0.1 resnet", "close 0.1"]);
    assert_eq!((outcomes(&all), script.machine.known().count()), (vec![(2, Outcome::Done)], 0));
}

#[test]
fn smaller_batches_need_a_switch_and_larger_ones_are_warmed_first() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let all = script.reach(vec![see("gpu0", 0, 4, 8)]);
    assert_eq!(steps(&all), ["prepare 0.1 resnet 8", "verify 0.1 resnet 8", "switch 2"]);
    let all = script.reach(vec![see("gpu0", 0, 4, 1)]);
    assert_eq!(steps(&all), ["switch 3", "shrink 0.1 resnet 1"]);
    assert_eq!(script.ids(), ["0.1"]);
}

#[test]
fn a_failed_preparation_leaves_the_old_plan_and_nothing_else() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let before = script.machine.plan();
    let effects = script.propose(vec![ask("gpu0", 0, 6, 2)]);
    let (open, _) = step(&effects).unwrap();
    let (prepare, _) = step(&script.tell(Event::StepDone(open))).unwrap();
    let effects = script.tell(no(prepare));
    let all = script.carry_out(effects);
    assert_eq!(steps(&all), ["drop 1.1 bert", "close 1.1"]);
    assert!(
        matches!(&outcomes(&all)[..], [(2, Outcome::Failed { reason })] if reason.ends_with("failed after 1ms: no"))
    );
    assert_eq!((script.machine.plan(), script.ids()), (before, vec!["0.1".to_owned()]));
}

#[test]
fn a_wrong_answer_to_the_known_input_is_a_failure() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let mut effects = script.propose(vec![ask("gpu0", 0, 6, 2)]);
    for _ in 0..2 {
        let (id, _) = step(&effects).unwrap();
        effects = script.tell(Event::StepDone(id));
    }
    assert_eq!(steps(&effects), ["verify 1.1 bert 2"]);
    let (verify, _) = step(&effects).unwrap();
    let effects = script.tell(no(verify));
    let all = script.carry_out(effects);
    assert!(matches!(&outcomes(&all)[..], [(2, Outcome::Failed { .. })]));
    assert_eq!(script.machine.epoch(), Epoch(1));
}

#[test]
fn a_step_past_its_deadline_has_failed_and_its_late_answer_changes_nothing() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![ask("gpu0", 0, 6, 2)]);
    let (open, _) = step(&effects).unwrap();
    let effects = script.wait();
    assert_eq!(steps(&effects), ["close 1.1"]);
    assert!(script.tell(Event::StepDone(open)).is_empty());
    let all = script.carry_out(effects);
    assert!(
        matches!(&outcomes(&all)[..], [(2, Outcome::Failed { reason })] if reason.contains("no answer within 5s"))
    );
}

#[test]
fn a_switch_names_draining_gpulets_and_what_new_ones_wait_for() {
    let mut script = with(vec![see("gpu0", 0, 4, 2), ask("gpu0", 4, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 2, 2), ask("gpu0", 2, 6, 2), see("gpu1", 0, 8, 2)]);
    let table = switch(&script.carry_out(effects));
    assert_eq!((table.epoch, &table.draining[..]), (Epoch(2), &[id(0, 1), id(0, 2)][..]));
    let after: Vec<_> = table.active.iter().map(|active| (active.id, active.after.clone())).collect();
    assert_eq!(after, [(id(1, 1), vec![id(0, 1)]), (id(1, 2), vec![id(0, 1), id(0, 2)]), (id(1, 3), vec![])]);
}

#[test]
fn a_slow_drain_is_told_once_and_waited_for() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    let table = switch(&script.carry_out(effects));
    assert!(script.tell(Event::Switched { epoch: table.epoch }).is_empty());
    assert!(script.wait().is_empty(), "it still drains at the end of the bake time");
    assert_eq!(incidents(&script.wait()), 1);
    assert_eq!(script.machine.next_wake(), None);
    assert!(script.tell_after(60_000_000, Event::Tick).is_empty());
    let effects = script.tell(Event::Drained(id(0, 1)));
    assert_eq!(steps(&effects), ["drop 0.1 resnet"]);
    assert_eq!(outcomes(&script.carry_out(effects)), [(2, Outcome::Done)]);
}

fn roll_back(trouble: Event) {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    let back = switch(&script.tell(trouble));
    assert_eq!((back.epoch, back.is_rollback, &back.draining[..]), (Epoch(3), true, &[id(1, 1)][..]));
    assert_eq!((back.active[0].id, &back.active[0].after[..]), (id(0, 1), &[id(1, 1)][..]));
    assert!(script.tell(Event::Switched { epoch: Epoch(3) }).is_empty());
    let effects = script.tell(Event::Drained(id(1, 1)));
    let all = script.carry_out(effects);
    assert_eq!(steps(&all), ["drop 1.1 resnet", "close 1.1"]);
    assert!(matches!(&outcomes(&all)[..], [(2, Outcome::RolledBack { .. })]));
    assert_eq!((script.ids(), script.machine.epoch()), (vec!["0.1".to_owned()], Epoch(3)));
}

#[test]
fn a_fault_during_bake_time_is_rolled_back() {
    roll_back(Event::Fault { gpulet: id(1, 1), reason: "illegal address".to_owned() });
}

#[test]
fn lateness_during_bake_time_is_rolled_back() {
    roll_back(Event::Late { gpulet: id(1, 1), reason: "p99 80 ms of 50 ms".to_owned() });
}

#[test]
fn after_bake_time_and_for_old_gpulets_there_is_no_rollback() {
    let mut script = with(vec![see("gpu0", 0, 4, 2), ask("gpu1", 0, 4, 1)]);
    let late = |gpulet| Event::Late { gpulet, reason: "slow".to_owned() };
    assert!(script.tell(late(id(0, 1))).is_empty());
    let effects = script.propose(vec![see("gpu0", 0, 8, 2), ask("gpu1", 0, 4, 1)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    assert!(script.tell(late(id(0, 2))).is_empty(), "it was there before");
    let effects = script.tell(Event::Fault { gpulet: id(0, 2), reason: "broke".to_owned() });
    assert!(needs_a_plan(&effects) && steps(&effects).is_empty());
}

#[test]
fn the_first_plan_stays_in_force_after_a_fault_without_a_rollback() {
    let mut script = Script::new(problem(10_000));
    let effects = script.propose(vec![see("gpu0", 0, 4, 2), ask("gpu1", 0, 4, 1)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    let effects = script.tell(Event::Fault { gpulet: id(0, 1), reason: "broke".to_owned() });
    assert!(needs_a_plan(&effects) && steps(&effects).is_empty());
    // What broke is replaced before the plan counts as reached.
    let effects = script.wait();
    let all = script.carry_out(effects);
    let table = switch(&all);
    assert_eq!(
        (steps(&all)[0].as_str(), table.epoch, &table.draining[..]),
        ("open 1.1", Epoch(2), &[id(0, 1)][..])
    );
    script.confirm(&table);
    let effects = script.wait();
    assert_eq!(outcomes(&script.carry_out(effects)), [(1, Outcome::Done)]);
    assert_eq!(script.ids(), ["0.2", "1.1"]);
}

#[test]
fn what_broke_is_not_kept_by_the_next_plan() {
    let mut script = with(vec![see("gpu0", 0, 4, 2), ask("gpu1", 0, 4, 1)]);
    assert!(needs_a_plan(&script.tell(Event::Fault { gpulet: id(0, 1), reason: "broke".to_owned() })));
    assert!(script.machine.is_idle());
    let all = script.reach(vec![see("gpu0", 0, 4, 2), ask("gpu1", 0, 4, 1)]);
    assert_eq!(
        (outcomes(&all), script.ids()),
        (vec![(2, Outcome::Done)], vec!["0.2".to_owned(), "1.1".to_owned()])
    );
}

#[test]
fn a_refused_switch_discards_what_was_prepared() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    let epoch = switch(&script.carry_out(effects)).epoch;
    let effects =
        script.tell(Event::SwitchFailed { epoch, in_force: Epoch(1), reason: "too many lanes".to_owned() });
    let all = script.carry_out(effects);
    assert_eq!(steps(&all), ["drop 1.1 resnet", "close 1.1"]);
    assert!(matches!(&outcomes(&all)[..], [(2, Outcome::Failed { .. })]));
    assert_eq!((script.ids(), script.machine.epoch()), (vec!["0.1".to_owned()], Epoch(1)));
}

#[test]
fn a_switch_without_an_answer_is_made_certain() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    script.carry_out(effects);
    let back = switch(&script.wait());
    assert_eq!((back.epoch, back.is_rollback, &back.draining[..]), (Epoch(3), true, &[id(1, 1)][..]));
    assert!(script.tell(Event::Switched { epoch: Epoch(2) }).is_empty(), "too late");
    // No answer: the switch is repeated, and one incident is reported.
    let mut told = 0;
    for epoch in (4..10).map(Epoch) {
        let effects = script.wait();
        told += incidents(&effects);
        assert_eq!(switch(&effects).epoch, epoch);
    }
    assert_eq!(told, 1);
    script.tell(Event::Switched { epoch: Epoch(9) });
    let effects = script.tell(Event::Drained(id(1, 1)));
    assert!(matches!(&outcomes(&script.carry_out(effects))[..], [(2, Outcome::Failed { .. })]));
    assert_eq!((script.ids(), script.machine.epoch()), (vec!["0.1".to_owned()], Epoch(9)));
}

#[test]
fn a_rollback_that_fails_leaves_the_new_plan_in_force() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    let mut effects = script.tell(Event::Late { gpulet: id(1, 1), reason: "slow".to_owned() });
    for epoch in (3..6).map(Epoch) {
        assert_eq!(switch(&effects).epoch, epoch);
        effects = script.tell(Event::SwitchFailed { epoch, in_force: Epoch(2), reason: "no".to_owned() });
    }
    assert_eq!(incidents(&effects), 1);
    let all = script.carry_out(effects);
    assert_eq!(steps(&all), ["drop 0.1 resnet", "close 0.1"]);
    assert!(needs_a_plan(&all) && matches!(&outcomes(&all)[..], [(2, Outcome::Stopped { .. })]));
    assert_eq!(script.ids(), ["1.1"]);
}

#[test]
fn a_plan_that_comes_before_the_switch_takes_over_what_it_can_use() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2), ask("gpu1", 0, 4, 2)]);
    assert_eq!(steps(&effects), ["open 1.1", "open 1.2"]);
    let opened: Vec<_> = all_steps(&effects).map(|(id, _)| id).collect();
    let first = script.tell(Event::StepDone(opened[0]));
    let second = script.tell(Event::StepDone(opened[1]));
    assert_eq!(
        (steps(&first), steps(&second)),
        (vec!["prepare 1.1 resnet 2".to_owned()], vec!["prepare 1.2 bert 2".to_owned()])
    );
    // The new plan keeps gpu0 as it is and needs larger batches on gpu1. It waits for both.
    assert!(script.propose(vec![see("gpu0", 0, 4, 2), ask("gpu1", 0, 4, 4)]).is_empty());
    assert!(script.tell(Event::StepDone(step(&first).unwrap().0)).is_empty());
    let effects = script.tell(Event::StepDone(step(&second).unwrap().0));
    assert_eq!(outcomes(&effects), [(2, Outcome::Superseded)]);
    let all = script.carry_out(effects);
    assert_eq!(
        steps(&all),
        ["drop 1.1 resnet", "close 1.1", "prepare 1.2 bert 4", "verify 1.2 bert 4", "switch 2"]
    );
    script.confirm(&switch(&all));
    assert_eq!(outcomes(&script.wait()), [(3, Outcome::Done)]);
    assert_eq!(script.ids(), ["0.1", "1.2"]);
}

#[test]
fn a_plan_that_comes_after_the_switch_waits_and_the_latest_wins() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    assert!(script.propose(vec![see("gpu1", 0, 8, 2)]).is_empty());
    assert_eq!(outcomes(&script.propose(vec![see("gpu2", 0, 8, 2)])), [(3, Outcome::Superseded)]);
    let effects = script.wait();
    let all = script.carry_out(effects);
    assert_eq!(outcomes(&all), [(2, Outcome::Done)]);
    assert_eq!(switch(&all).proposal, ProposalId(4));
}

#[test]
fn a_plan_that_cannot_be_reached_does_not_take_over() {
    let mut script = Script::new(problem(600));
    script.reach(vec![gpulet("gpu0", 0, 4, vec![slot("rank", 1, 10.0)])]);
    let first = script.propose(vec![gpulet("gpu0", 0, 4, vec![slot("rank", 2, 10.0)])]);
    // Two more models of 350 bytes do not fit, and `rank` has no other device to run on during the change.
    let whole = vec![slot("rank", 1, 10.0), slot("hear", 1, 10.0), slot("ask", 1, 10.0)];
    assert!(script.propose(vec![gpulet("gpu0", 0, 8, whole)]).is_empty());
    let all = script.carry_out(first);
    let refused = outcomes(&all);
    assert!(
        matches!(&refused[..], [(3, Outcome::Refused { refusal: Refusal::Memory { device, needed_bytes: 555, has_bytes: 550 } })] if device == "gpu0"),
        "{refused:?}"
    );
    assert_eq!(switch(&all).proposal, ProposalId(2), "the plan under way goes on");
}

#[test]
fn an_operator_ends_a_change_before_its_switch_and_not_after_it() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    assert!(script.tell(Event::Freeze).is_empty(), "the step that is under way ends first");
    let all = script.carry_out(effects);
    assert_eq!(steps(&all)[1..], ["close 1.1"]);
    assert!(
        matches!(&outcomes(&all)[..], [(2, Outcome::Failed { reason })] if reason == "aborted by an operator")
    );
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    assert_eq!(outcomes(&effects), [(3, Outcome::Refused { refusal: Refusal::Frozen })]);
    script.tell(Event::Thaw);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    let table = switch(&script.carry_out(effects));
    script.tell(Event::Abort);
    script.confirm(&table);
    let effects = script.wait();
    assert_eq!(outcomes(&script.carry_out(effects)), [(4, Outcome::Done)]);
}

fn removed(device: &str) -> Event {
    Event::DeviceRemoved { device: device.into(), reason: "fell off the bus".to_owned() }
}

#[test]
fn a_device_that_vanishes_takes_its_gpulets_along_and_the_rest_goes_on() {
    let mut script = with(vec![see("gpu0", 0, 4, 2), ask("gpu1", 0, 4, 2)]);
    let effects = script.tell(removed("gpu1"));
    assert!(needs_a_plan(&effects) && script.machine.is_idle());
    assert_eq!(script.ids(), ["0.1"]);
    assert!(script.tell(removed("gpu2")).is_empty(), "nothing was there");
    // Removed during a preparation on it: the other steps of the plan are carried out.
    let effects = script.propose(vec![see("gpu0", 0, 8, 2), ask("gpu1", 0, 4, 2)]);
    assert!(needs_a_plan(&script.tell(removed("gpu1"))));
    let all = script.carry_out(effects);
    assert_eq!(switch(&all).active.len(), 1);
    script.confirm(&switch(&all));
    let effects = script.wait();
    assert!(matches!(&outcomes(&script.carry_out(effects))[..], [(2, Outcome::Stopped { .. })]));
}

#[test]
fn a_workload_does_not_follow_to_a_device_that_vanished() {
    // Before the switch: it stays where it is.
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu1", 0, 4, 2)]);
    assert_eq!(steps(&effects), ["open 1.1"]);
    let effects = script.tell(removed("gpu1"));
    assert!(
        matches!(&outcomes(&effects)[..], [(2, Outcome::Failed { reason })] if reason.contains("`see`")),
        "{effects:?}"
    );
    assert_eq!(script.ids(), ["0.1"]);
    // During the bake time: it is rolled back.
    let effects = script.propose(vec![see("gpu1", 0, 4, 2)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    let back = switch(&script.tell(removed("gpu1")));
    assert!(back.is_rollback);
    let effects = script.tell(Event::Switched { epoch: back.epoch });
    assert!(matches!(&outcomes(&effects)[..], [(3, Outcome::RolledBack { .. })]));
    assert_eq!(script.ids(), ["0.1"]);
}

#[test]
fn a_plan_that_waits_for_a_device_that_vanished_is_refused() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu0", 0, 8, 2)]);
    script.carry_out(effects);
    script.propose(vec![see("gpu1", 0, 8, 2)]);
    let effects = script.tell(removed("gpu1"));
    let refusal = Refusal::DeviceRemoved { device: "gpu1".into() };
    assert_eq!(outcomes(&effects), [(3, Outcome::Refused { refusal })]);
}

#[test]
fn what_cannot_be_closed_is_tried_again_and_then_written_off() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    let effects = script.propose(vec![see("gpu1", 0, 4, 2)]);
    let table = switch(&script.carry_out(effects));
    script.confirm(&table);
    let mut effects = script.wait();
    for _ in 0..2 {
        assert_eq!(steps(&effects), ["drop 0.1 resnet"]);
        let (id, _) = step(&effects).unwrap();
        effects = script.tell(no(id));
    }
    let (last, _) = step(&effects).unwrap();
    let effects = script.tell(no(last));
    assert_eq!((incidents(&effects), outcomes(&effects)), (1, vec![(2, Outcome::Done)]));
    // 10 of the gpulet, 60 of the weights, 20 of the arena.
    assert_eq!(script.machine.snapshot().written_off_bytes, [("gpu0".into(), 90)]);
    script.tell(removed("gpu0"));
    assert!(script.machine.snapshot().written_off_bytes.is_empty());
}

#[test]
fn the_history_reads_like_what_happened() {
    let mut script = with(vec![see("gpu0", 0, 4, 2)]);
    script.reach(vec![see("gpu0", 0, 8, 2)]);
    let words = script.words().split_off(5);
    assert_eq!(
        words,
        [
            "plan 1: 3.004s from begin to end, 1 gpulets are active",
            "plan 1 in force",
            "plan 2 proposed: 1 gpulets on 1 devices",
            "gpulet 1.1 (gpu0, units 0-7): opened in 1ms",
            "gpulet 1.1 (gpu0, units 0-7): `resnet` prepared for batches of 2 in 1ms",
            "gpulet 1.1 (gpu0, units 0-7): `resnet` verified in 1ms",
            "epoch 2 in force after 1ms: 1 gpulets active, 1 draining",
            "gpulet 0.1 (gpu0, units 0-3) idle after 1ms",
            "gpulet 0.1 (gpu0, units 0-3): `resnet` closed in 1ms",
            "gpulet 0.1 (gpu0, units 0-3): closed in 1ms",
            "plan 2: 3.006s from begin to end, 1 gpulets are active",
            "plan 2 in force",
        ]
    );
    let entry = script.machine.history().next_back().unwrap();
    let text = serde_json::to_string(entry).unwrap();
    assert_eq!(entry.kind, EntryKind::Ended);
    assert!(text.contains(r#""kind":"ended""#) && text.contains(r#""proposal":2"#), "{text}");
    assert_eq!(&serde_json::from_str::<gpulet_core::rollout::Entry>(&text).unwrap(), entry);
    let snapshot = serde_json::to_string(&script.machine.snapshot()).unwrap();
    assert!(snapshot.contains(r#""phase":"idle""#) && snapshot.contains(r#""state":"active""#), "{snapshot}");
}
