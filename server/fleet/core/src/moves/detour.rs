//! Copies that wait for each other's space.

use std::time::Duration;

use super::state::State;
use super::{Copy, Moves, Step};
use crate::node_plan::{PlannedModel, Role};

impl Moves {
    /// Nothing moves, because copies wait for each other's space. One copy that is in the way is started on a third node for a while,
    /// so that it may leave.
    pub(super) fn detour(
        &mut self,
        now: Duration,
        state: &mut State<'_>,
        waiting: &[Copy<'_>],
        step: &mut Step,
    ) {
        for (node, planned) in waiting {
            if state.fits(node, &planned.model) {
                continue;
            }
            // A spare that stays because its model does not serve elsewhere is not in the way for long.
            for model in state.blocks(node) {
                if self.start_elsewhere(now, state, &model, step) {
                    return;
                }
            }
            step.blocked += usize::from(planned.role == Role::Serving);
        }
    }

    fn start_elsewhere(
        &mut self,
        now: Duration,
        state: &mut State<'_>,
        model: &str,
        step: &mut Step,
    ) -> bool {
        let Some(node) = state.space_for(model) else { return false };
        // The copy may be a spare there already.
        let is_load = !state.spares(&node).iter().any(|spare| spare == model);
        for spare in state.spares(&node) {
            if !is_load || state.fits(&node, model) {
                break;
            }
            if self.may_leave(state, &node, &spare, Role::Spare) {
                state.remove(&node, &spare);
            }
        }
        if is_load && (!state.fits(&node, model) || !self.take(now, state, &node)) {
            return false;
        }
        state.insert(&node, PlannedModel { model: model.to_owned(), rate: 0.0, role: Role::Serving });
        if is_load {
            step.started += 1;
        }
        true
    }
}
