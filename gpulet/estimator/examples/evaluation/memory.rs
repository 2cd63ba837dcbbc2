//! Working memory of models that were never run, from the known models.

use estimator::ArenaShare;

use super::known::LeaveOut;

/// Measured arenas, next to their bounds from the other models.
#[derive(Default)]
pub struct Memory {
    pub arenas: usize,
    /// How many need no more than the bound.
    pub inside: usize,
    /// Bound divided by need, of each arena of at least [`ArenaShare::OVERHEAD`].
    pub ratios: Vec<f64>,
}

pub fn study(known: &LeaveOut<'_>) -> Memory {
    let mut memory = Memory::default();
    for model in known.all {
        let others = known.others(model);
        let arenas = others
            .iter()
            .flat_map(|other| other.arenas.iter().map(|(batch, bytes)| (&other.network, *batch, *bytes)));
        let share = ArenaShare::of(arenas);
        for (batch, bytes) in &model.arenas {
            let bound = share.bytes(&model.network, *batch);
            memory.arenas += 1;
            memory.inside += usize::from(*bytes <= bound);
            if *bytes >= ArenaShare::OVERHEAD {
                memory.ratios.push(bound as f64 / *bytes as f64);
            }
        }
    }
    memory
}
