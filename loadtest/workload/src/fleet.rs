//! The machines of a simulated fleet, their network and their faults.

use std::collections::BTreeMap;

use serde::Deserialize;
use units::Fault as WorkloadError;

use crate::spans::{Span, show};

/// Nodes of a fleet at most.
pub const NODES_MAX: u32 = 10_000;
const PICKERS_MAX: u32 = 64;
const FAULTS_MAX: usize = 1_000;
const MODELS_PER_NODE_MAX: u32 = 4_096;
const TYPES_MAX: usize = 32;
const TYPE_NAME_BYTES_MAX: usize = 64;
const SPEEDS: (f64, f64) = (0.01, 100.0);
const COSTS: (f64, f64) = (0.000_001, 1e9);
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The machines that the lanes of a workload are on. The simulator plays them; the load generator has real ones.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fleet {
    /// Nodes, which are numbered from 0. Each has the same number of lanes.
    pub nodes: u32,
    /// Pickers that choose nodes for requests, all active.
    pub pickers: u32,
    /// Nanoseconds between two messages of a node to the pickers.
    pub signals: u64,
    /// Nanoseconds of every message's way, one way.
    pub network: u64,
    /// Models that the memory of a node holds.
    pub models_per_node: u32,
    /// Failure domains. The nodes are spread over them evenly.
    pub zones: u32,
    /// Nanoseconds that loading a model takes.
    pub load: u64,
    /// Nanoseconds from the failure of a node or the leader until the others know.
    pub notice: u64,
    /// Faults in order of time.
    pub faults: Vec<FleetFault>,
    /// Device types, at least one. The first nodes are of the first type, and so on.
    pub types: Vec<NodeType>,
}

/// Nodes whose devices are of one type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeType {
    /// Its name.
    pub name: String,
    /// Nodes of this type.
    pub nodes: u32,
    /// What a lane costs, in any unit.
    pub cost: f64,
    /// Speed of its lanes: 2 takes half the time of the models' profiles.
    pub speed: f64,
    /// Speed for single models, by name, in place of `speed`.
    pub speeds: BTreeMap<String, f64>,
}

/// A fault, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetFault {
    /// Virtual time from the start, in nanoseconds.
    pub at: u64,
    /// When it ends. `None`: it lasts.
    pub until: Option<u64>,
    /// What fails.
    pub part: FleetPart,
}

/// A part of a fleet that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetPart {
    /// A node loses all that it holds, and starts again with its last plan.
    Node(u32),
    /// A picker stops and goes on later, with the views that it had. Its requests wait.
    Picker(u32),
    /// No plan changes.
    Leader,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetSection {
    nodes: u32,
    pickers: Option<u32>,
    signals: Option<Span>,
    network: Option<Span>,
    models_per_node: Option<u32>,
    zones: Option<u32>,
    load: Option<Span>,
    notice: Option<Span>,
    #[serde(default)]
    faults: Vec<FaultSection>,
    #[serde(default)]
    types: Vec<TypeSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeSection {
    name: String,
    nodes: u32,
    cost: Option<f64>,
    speed: Option<f64>,
    #[serde(default)]
    speeds: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultSection {
    at: Span,
    until: Option<Span>,
    node: Option<u32>,
    picker: Option<u32>,
    #[serde(default)]
    leader: bool,
}

fn within<T: PartialOrd + std::fmt::Display + Copy>(
    key: &str,
    value: T,
    (least, most): (T, T),
    shown: impl Fn(T) -> String,
) -> Result<T, WorkloadError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    let problem = format!("expected {} to {}, got {}", shown(least), shown(most), shown(value));
    Err(WorkloadError::new(format!("fleet.{key}"), problem))
}

impl Fleet {
    /// `lanes`: their number, and whether the workload says when some of them fail.
    pub(crate) fn read(section: &FleetSection, (lanes, fail): (u32, bool)) -> Result<Self, WorkloadError> {
        let count =
            |key: &str, value: u32, most: u32| within(key, value, (1, most), |value| value.to_string());
        let span = |key: &str, value: Option<Span>, default: u64, range: (u64, u64)| {
            within(key, value.map_or(default, |span| span.0), range, show)
        };
        let nodes = count("nodes", section.nodes, NODES_MAX)?;
        if !lanes.is_multiple_of(nodes) {
            let problem = format!("expected a divisor of `lanes.count`, which is {lanes}, got {nodes}");
            return Err(WorkloadError::new("fleet.nodes", problem));
        }
        if fail {
            let problem = "lanes of a fleet fail with their node: expected [[fleet.faults]] instead";
            return Err(WorkloadError::new("lanes.failures", problem));
        }
        let pickers = count("pickers", section.pickers.unwrap_or(1), PICKERS_MAX)?;
        Ok(Self {
            nodes,
            pickers,
            signals: span("signals", section.signals, 100 * MILLISECOND, (MILLISECOND, 10 * SECOND))?,
            network: span("network", section.network, MILLISECOND / 5, (0, SECOND))?,
            models_per_node: count(
                "models_per_node",
                section.models_per_node.unwrap_or(16),
                MODELS_PER_NODE_MAX,
            )?,
            zones: count("zones", section.zones.unwrap_or(1), nodes)?,
            load: span("load", section.load, 2 * SECOND, (0, 3_600 * SECOND))?,
            notice: span("notice", section.notice, SECOND, (0, 3_600 * SECOND))?,
            faults: read_faults(&section.faults, nodes, pickers)?,
            types: read_types(&section.types, nodes)?,
        })
    }

    /// Whether lanes of different nodes take different times for the same batch.
    pub fn is_unequal(&self) -> bool {
        let first = self.types.first();
        self.types
            .iter()
            .any(|one| first.is_some_and(|first| first.speed != one.speed || first.speeds != one.speeds))
    }

    /// Index of the type of a node.
    pub fn type_of(&self, node: u32) -> usize {
        let mut first = 0_u32;
        let mut is_before = |one: &NodeType| {
            first = first.saturating_add(one.nodes);
            node >= first
        };
        self.types.iter().take_while(|one| is_before(one)).count().min(self.types.len().saturating_sub(1))
    }

    /// Refuses speeds of models that the workload does not have.
    pub(crate) fn check_models(&self, names: &[&str]) -> Result<(), WorkloadError> {
        for (number, one) in self.types.iter().enumerate() {
            if let Some(name) = one.speeds.keys().find(|name| !names.contains(&name.as_str())) {
                let problem = format!("expected the name of a model, got `{name}`");
                return Err(WorkloadError::new(format!("fleet.types.{number}.speeds"), problem));
            }
        }
        Ok(())
    }
}

impl NodeType {
    /// Speed of its lanes for a model.
    pub fn speed_of(&self, model: &str) -> f64 {
        self.speeds.get(model).copied().unwrap_or(self.speed)
    }
}

fn read_types(sections: &[TypeSection], nodes: u32) -> Result<Vec<NodeType>, WorkloadError> {
    if sections.is_empty() {
        let (name, speeds) = ("lane".to_owned(), BTreeMap::new());
        return Ok(vec![NodeType { name, nodes, cost: 1.0, speed: 1.0, speeds }]);
    }
    if sections.len() > TYPES_MAX {
        let problem = format!("expected at most {TYPES_MAX}, got {}", sections.len());
        return Err(WorkloadError::new("fleet.types", problem));
    }
    let sum = sections.iter().fold(0_u32, |sum, section| sum.saturating_add(section.nodes));
    if sum != nodes {
        let problem = format!("expected types with {nodes} nodes in all, as in `fleet.nodes`, got {sum}");
        return Err(WorkloadError::new("fleet.types", problem));
    }
    let mut types: Vec<NodeType> = Vec::with_capacity(sections.len());
    for (number, section) in sections.iter().enumerate() {
        let field = |key: &str| format!("types.{number}.{key}");
        let number_in =
            |key: &str, value: f64, range| within(&field(key), value, range, |value| value.to_string());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let name = &section.name;
        let is_name = (1..=TYPE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
        if !is_name || types.iter().any(|other| other.name == *name) {
            let problem = format!(
                "expected 1 to {TYPE_NAME_BYTES_MAX} letters, digits, `-`, `.` and `_`, each name once, got `{name}`"
            );
            return Err(WorkloadError::new(format!("fleet.{}", field("name")), problem));
        }
        within(&field("nodes"), section.nodes, (1, nodes), |value| value.to_string())?;
        for (model, speed) in &section.speeds {
            number_in(&format!("speeds.{model}"), *speed, SPEEDS)?;
        }
        types.push(NodeType {
            name: name.clone(),
            nodes: section.nodes,
            cost: number_in("cost", section.cost.unwrap_or(1.0), COSTS)?,
            speed: number_in("speed", section.speed.unwrap_or(1.0), SPEEDS)?,
            speeds: section.speeds.clone(),
        });
    }
    Ok(types)
}

fn read_faults(
    sections: &[FaultSection],
    nodes: u32,
    pickers: u32,
) -> Result<Vec<FleetFault>, WorkloadError> {
    if sections.len() > FAULTS_MAX {
        let problem = format!("expected at most {FAULTS_MAX}, got {}", sections.len());
        return Err(WorkloadError::new("fleet.faults", problem));
    }
    let read = |(number, section): (usize, &FaultSection)| {
        let field = format!("fleet.faults.{number}");
        let known = |key: &str, value: u32, count: u32| {
            let problem = format!("expected 0 to {}, got {value}", count - 1);
            if value < count { Ok(value) } else { Err(WorkloadError::new(format!("{field}.{key}"), problem)) }
        };
        let part = match (section.node, section.picker, section.leader) {
            (Some(node), None, false) => FleetPart::Node(known("node", node, nodes)?),
            (None, Some(picker), false) => FleetPart::Picker(known("picker", picker, pickers)?),
            (None, None, true) => FleetPart::Leader,
            _ => {
                let problem = "expected one of `node = NUMBER`, `picker = NUMBER` and `leader = true`";
                return Err(WorkloadError::new(field, problem));
            }
        };
        let until = section.until.map(|until| until.0);
        if let Some(until) = until.filter(|until| *until <= section.at.0) {
            let problem =
                format!("expected more than `at`, which is {}, got {}", show(section.at.0), show(until));
            return Err(WorkloadError::new(format!("{field}.until"), problem));
        }
        Ok(FleetFault { at: section.at.0, until, part })
    };
    let mut faults = sections.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    faults.sort_by_key(|fault| fault.at);
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    const SOUND: &str = r#"
        name = "w"
        duration = "1s"
        [lanes]
        count = 8
        [fleet]
        nodes = 4
        faults = [{ at = "2s", node = 3 }, { at = "1s", until = "3s", picker = 0 }, { at = "4s", leader = true }]
        [models.m]
        slo = "25ms"
        rate = 10.0
        profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
    "#;

    fn read(text: &str) -> Result<Workload, WorkloadError> {
        Workload::parse(text, &mut |name| Err(format!("no file {name}")))
    }

    #[test]
    fn defaults_are_those_of_the_readme_and_faults_are_in_order() {
        let fleet = read(SOUND).unwrap().fleet.unwrap();
        assert_eq!((fleet.nodes, fleet.pickers, fleet.zones, fleet.models_per_node), (4, 1, 1, 16));
        let millis = [fleet.signals, fleet.load, fleet.notice].map(|span| span / MILLISECOND);
        assert_eq!((millis, fleet.network), ([100, 2_000, 1_000], 200_000));
        let parts: Vec<FleetPart> = fleet.faults.iter().map(|fault| fault.part).collect();
        assert_eq!(parts, [FleetPart::Picker(0), FleetPart::Node(3), FleetPart::Leader]);
    }

    #[test]
    fn nodes_are_of_the_types_in_order_and_speeds_of_single_models_count() {
        let types = "types = [{ name = \"a\", nodes = 1, cost = 3.0 }, \
                     { name = \"b\", nodes = 3, speed = 0.5, speeds = { m = 0.25 } }]";
        let text = SOUND.replacen("nodes = 4", &format!("nodes = 4\n{types}"), 1);
        let fleet = read(&text).unwrap().fleet.unwrap();
        assert_eq!([0, 1, 3, 9].map(|node| fleet.type_of(node)), [0, 1, 1, 1]);
        let [a, b] = &fleet.types[..] else { panic!("{:?}", fleet.types) };
        assert_eq!(
            (a.cost, a.speed_of("m"), b.cost, b.speed_of("m"), b.speed_of("n")),
            (3.0, 1.0, 1.0, 0.25, 0.5)
        );
        for (from, to, said) in [
            ("nodes = 3,", "nodes = 4,", "fleet.types: expected types with 4 nodes in all"),
            ("\"b\"", "\"a\"", "fleet.types.1.name: expected 1 to 64 letters"),
            ("\"b\"", "\"\"", "fleet.types.1.name: expected 1 to 64 letters"),
            ("speed = 0.5", "speed = 0.0", "fleet.types.1.speed: expected 0.01 to 100, got 0"),
            ("m = 0.25", "m = nan", "fleet.types.1.speeds.m: expected 0.01 to 100, got NaN"),
            ("m = 0.25", "x = 0.25", "fleet.types.1.speeds: expected the name of a model, got `x`"),
            ("cost = 3.0", "cost = -1.0", "fleet.types.0.cost: expected 0.000001 to 1000000000, got -1"),
        ] {
            let error = read(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_right() {
        for (from, to, said) in [
            ("nodes = 4", "nodes = 3", "fleet.nodes: expected a divisor of `lanes.count`, which is 8, got 3"),
            ("nodes = 4", "nodes = 0", "fleet.nodes: expected 1 to 10000, got 0"),
            ("nodes = 4", "nodes = 4\npickers = 65", "fleet.pickers: expected 1 to 64, got 65"),
            ("nodes = 4", "nodes = 4\nzones = 5", "fleet.zones: expected 1 to 4, got 5"),
            ("nodes = 4", "nodes = 4\nsignals = \"0.1ms\"", "fleet.signals: expected 1ms to 10s, got 100us"),
            ("node = 3", "node = 4", "fleet.faults.0.node: expected 0 to 3, got 4"),
            ("node = 3", "node = 3, picker = 0", "fleet.faults.0: expected one of `node = NUMBER`"),
            (
                "until = \"3s\"",
                "until = \"1s\"",
                "fleet.faults.1.until: expected more than `at`, which is 1s, got 1s",
            ),
            (
                "count = 8",
                "count = 8\nfailures = [{ lane = 1, from = \"0s\" }]",
                "lanes.failures: lanes of a fleet fail with",
            ),
        ] {
            let error = read(&SOUND.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }
}
