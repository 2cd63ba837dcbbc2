//! What is lost with spot devices.

use gpulet_core::plan::{Plan, Slot};

use crate::question::{Demand, Question};

/// Share of the requests of each demand that is lost with spot devices in the long run, in the order of [`Question::demands`]:
/// a device's share of the requests times the share of the time that it is lost.
pub type Losses = Vec<f64>;

fn is_of(question: &Question, demand: &Demand, slot: &Slot) -> bool {
    let mut names = demand.entries.iter().filter_map(|(entry, _)| question.entries().get(*entry));
    names.any(|entry| entry.name == slot.workload)
}

/// The losses of a plan.
pub fn losses(question: &Question, plan: &Plan) -> Losses {
    let of = |demand: &Demand| {
        let (mut all, mut lost) = (0.0, 0.0);
        for gpulet in &plan.gpulets {
            let share = question.spot().lost(&gpulet.device);
            for slot in gpulet.slots.iter().filter(|slot| is_of(question, demand, slot)) {
                all += slot.rate;
                lost += share * slot.rate;
            }
        }
        if all > 0.0 { lost / all } else { 0.0 }
    };
    question.demands().iter().map(of).collect()
}
