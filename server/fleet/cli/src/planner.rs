//! A simple planner: each model has `minReplicas` copies, which stay where they are as long as their nodes work.

use std::collections::BTreeMap;

use fleet_core::node_plan::{NodePlan, PlannedModel, Role};
use fleet_kubernetes::leader::inputs::{Inputs, NodeState, Planner, Plans, selects};

/// Keeps copies where they are. New ones go to the nodes with the fewest models.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sticky;

impl Planner for Sticky {
    fn plan(&mut self, inputs: &Inputs) -> Plans {
        let alive: Vec<&NodeState> = inputs.nodes.iter().filter(|node| in_a_pool(inputs, node)).collect();
        let empty =
            |node: &&NodeState| (node.name.clone(), NodePlan { epoch: inputs.epoch, ..NodePlan::default() });
        let mut plans = Plans { nodes: alive.iter().map(empty).collect(), ..Plans::default() };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for model in &inputs.models {
            let Some(name) = model.metadata.name.clone() else { continue };
            let selector = model.spec.placement.as_ref().map(|placement| placement.node_selector.clone());
            let selector = selector.unwrap_or_default();
            let mut nodes: Vec<&&NodeState> =
                alive.iter().filter(|node| selects(&selector, &node.labels)).collect();
            let has = |node: &NodeState| node.plan.models.iter().any(|planned| planned.model == name);
            nodes.sort_by_key(|node| (!has(node), counts.get(node.name.as_str()).copied().unwrap_or(0)));
            let copies = usize::try_from(model.spec.min_replicas).unwrap_or_default();
            if nodes.len() < copies {
                let problem =
                    format!("minReplicas is {copies}, and {} nodes fit its constraints", nodes.len());
                plans.unplaced.insert(name.clone(), problem);
            }
            let chosen: Vec<&str> = nodes.into_iter().take(copies).map(|node| node.name.as_str()).collect();
            for node in &chosen {
                *counts.entry(node).or_default() += 1;
                let rate = model.spec.rate.unwrap_or(0.0) / chosen.len() as f64;
                let planned = PlannedModel { model: name.clone(), rate, role: Role::Serving };
                if !has_model(inputs, node, &name) {
                    plans.urgent.insert((*node).to_owned());
                }
                if let Some(plan) = plans.nodes.get_mut(*node) {
                    plan.models.push(planned);
                }
            }
        }
        plans
    }
}

fn has_model(inputs: &Inputs, node: &str, model: &str) -> bool {
    let node = inputs.nodes.iter().find(|state| state.name == node);
    node.is_some_and(|node| node.plan.models.iter().any(|planned| planned.model == model))
}

/// Whether a node works and belongs to a pool. Without a pool, every node does.
fn in_a_pool(inputs: &Inputs, node: &NodeState) -> bool {
    let mut pools = inputs.pools.iter();
    node.alive
        && (inputs.pools.is_empty() || pools.any(|pool| selects(&pool.spec.node_selector, &node.labels)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fleet_kubernetes::resources::model::{Model, ModelSpec, Objective, Source};
    use fleet_kubernetes::resources::node_plan::{NodePlanSpec, NodePlanStatus};

    use super::*;

    fn node(name: &str) -> NodeState {
        NodeState {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            alive: true,
            generation: Some(1),
            plan: NodePlanSpec::default(),
            status: NodePlanStatus::default(),
        }
    }

    fn inputs(models: &[&str], nodes: Vec<NodeState>) -> Inputs {
        let model = |name: &&str| {
            let model = Model::new(
                name,
                ModelSpec {
                    source: Source { uri: format!("file:///{name}"), digest: None },
                    objective: Objective { slo: "50ms".to_owned() },
                    class: 1,
                    tenant: "default".to_owned(),
                    min_replicas: 1,
                    max_replicas: None,
                    placement: None,
                    rate: None,
                    memory_bytes: None,
                    profile: None,
                },
            );
            Arc::new(model)
        };
        Inputs { epoch: 3, pools: Vec::new(), models: models.iter().map(model).collect(), nodes }
    }

    fn models(plans: &Plans, node: &str) -> Vec<String> {
        plans.nodes[node].models.iter().map(|planned| planned.model.clone()).collect()
    }

    #[test]
    fn copies_stay_where_they_are_until_their_node_fails() {
        let plans = Sticky.plan(&inputs(&["x", "y", "z"], vec![node("a"), node("b")]));
        assert_eq!(
            (models(&plans, "a"), models(&plans, "b")),
            (vec!["x".into(), "z".into()], vec!["y".into()])
        );
        assert_eq!(plans.urgent.len(), 2);
        let planned = |mut node: NodeState| {
            node.plan = NodePlanSpec::from_core(&plans.nodes[&node.name], &BTreeMap::new());
            node
        };
        let after = Sticky.plan(&inputs(&["w", "x", "y", "z"], vec![planned(node("a")), planned(node("b"))]));
        assert!(models(&after, "a").ends_with(&["x".into(), "z".into()]), "{after:?}");
        assert!(models(&after, "b").contains(&"y".to_owned()), "{after:?}");
        let lost = NodeState { alive: false, ..planned(node("a")) };
        let after = Sticky.plan(&inputs(&["x", "y", "z"], vec![lost, planned(node("b"))]));
        assert_eq!(models(&after, "b"), ["x", "y", "z"]);
        assert!(!after.nodes.contains_key("a"), "a failed node keeps its plan");
        let after = Sticky.plan(&inputs(&["x"], Vec::new()));
        assert_eq!(after.unplaced["x"], "minReplicas is 1, and 0 nodes fit its constraints");
    }
}
