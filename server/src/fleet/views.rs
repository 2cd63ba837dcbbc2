//! What the other nodes last said, and which of them gets a request. Without I/O.

use std::collections::BTreeMap;

use super::proto::{ModelSignals, Signals};

/// What one node last said.
#[derive(Debug, Default)]
struct View {
    /// Whether its stream is open. What it said last is kept until it says something else.
    connected: bool,
    draining: bool,
    models: BTreeMap<String, ModelSignals>,
}

/// The views of all other nodes, in the order of their names.
#[derive(Debug)]
pub(super) struct Views(Vec<View>);

/// Where a model is besides here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// No other node has it.
    Nowhere,
    /// Other nodes have it, and none takes requests of it.
    NotReady,
    /// Nodes that take requests of it, best first.
    On(Vec<usize>),
}

impl Views {
    /// Views of that many nodes, which have said nothing yet.
    pub(super) fn new(nodes: usize) -> Self {
        Self(std::iter::repeat_with(View::default).take(nodes).collect())
    }

    /// A node said this.
    pub(super) fn said(&mut self, node: usize, signals: Signals) {
        let Some(view) = self.0.get_mut(node) else { return };
        view.connected = true;
        view.draining = signals.draining;
        if signals.complete {
            view.models.clear();
        }
        for name in &signals.removed {
            view.models.remove(name);
        }
        view.models.extend(signals.models.into_iter().map(|model| (model.model.clone(), model)));
    }

    /// The stream of a node ended.
    pub(super) fn lost(&mut self, node: usize) {
        if let Some(view) = self.0.get_mut(node) {
            view.connected = false;
        }
    }

    /// Which nodes have a model: connected ones first, those that do not drain first, then by the time that a request waits, then by
    /// name. A node that drains still serves for a while.
    pub(super) fn of(&self, model: &str) -> Elsewhere {
        let having = || {
            self.0.iter().enumerate().filter_map(|(node, view)| Some((node, view, view.models.get(model)?)))
        };
        let taking = having().filter(|(_, _, model)| model.ready);
        let mut ranked: Vec<_> = taking
            .map(|(node, view, model)| (!view.connected, view.draining, wait_us(model), node))
            .collect();
        ranked.sort_unstable();
        if ranked.is_empty() {
            return if having().next().is_some() { Elsewhere::NotReady } else { Elsewhere::Nowhere };
        }
        Elsewhere::On(ranked.into_iter().map(|(.., node)| node).collect())
    }
}

/// Microseconds until a request would run.
fn wait_us(model: &ModelSignals) -> u64 {
    model.free_in_us.saturating_add(model.backlog_us / u64::from(model.lanes.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, free_in_us: u64, backlog_us: u64, lanes: u32) -> ModelSignals {
        ModelSignals {
            model: name.to_owned(),
            ready: true,
            free_in_us,
            backlog_us,
            lanes,
            ..Default::default()
        }
    }

    fn first(models: Vec<ModelSignals>) -> Signals {
        Signals { complete: true, models, ..Signals::default() }
    }

    #[test]
    fn the_least_wait_wins_and_names_decide_ties() {
        let mut views = Views::new(3);
        assert_eq!(views.of("m"), Elsewhere::Nowhere);
        views.said(0, first(vec![model("m", 0, 4_000, 1)]));
        views.said(1, first(vec![model("m", 500, 4_000, 4)]));
        views.said(2, first(vec![model("n", 0, 0, 1)]));
        assert_eq!(views.of("m"), Elsewhere::On(vec![1, 0]));
        views.said(0, Signals { models: vec![model("m", 1_500, 0, 1)], ..Signals::default() });
        assert_eq!(views.of("m"), Elsewhere::On(vec![0, 1]));
    }

    #[test]
    fn draining_nodes_come_after_others_and_lost_ones_last() {
        let mut views = Views::new(3);
        (0..3).for_each(|node| views.said(node, first(vec![model("m", 0, 0, 1)])));
        views.said(0, Signals { draining: true, ..Signals::default() });
        views.lost(1);
        assert_eq!(views.of("m"), Elsewhere::On(vec![2, 0, 1]));
    }

    #[test]
    fn a_new_stream_replaces_what_was_said() {
        let mut views = Views::new(1);
        views.said(0, first(vec![model("m", 0, 0, 1), model("n", 0, 0, 1)]));
        views.said(0, Signals { removed: vec!["n".to_owned()], ..Signals::default() });
        assert_eq!(views.of("n"), Elsewhere::Nowhere);
        views.lost(0);
        views.said(0, first(vec![ModelSignals { ready: false, ..model("n", 0, 0, 1) }]));
        assert_eq!((views.of("m"), views.of("n")), (Elsewhere::Nowhere, Elsewhere::NotReady));
    }
}
