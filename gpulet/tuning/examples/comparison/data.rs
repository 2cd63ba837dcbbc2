//! The measured grids.

use tuning::{BATCHES, Configuration, Engine, Level, Measurement, Objective, Setup, Space, Surface};

/// A model of which all configurations were measured, in several rounds.
pub struct Model {
    pub name: &'static str,
    /// Medians of the rounds, by index of the space.
    pub table: Vec<Option<Measurement>>,
    /// Rows per second of each round, by index of the space.
    rounds: Vec<Vec<f64>>,
}

const FILES: [(&str, &str); 3] = [
    ("rapidocr_cls", include_str!("../../data/rapidocr_cls.csv")),
    ("mtcnn_rnet", include_str!("../../data/mtcnn_rnet.csv")),
    ("mtcnn_onet", include_str!("../../data/mtcnn_onet.csv")),
];

pub fn space() -> Space {
    Space::new(2, &BATCHES, &Engine::EACH)
}

/// All models.
pub fn models(space: &Space) -> Vec<Model> {
    let of = |(name, grid): (&'static str, &str)| {
        let mut trials = vec![Vec::new(); space.len()];
        for (index, measurement) in grid.lines().skip(1).filter_map(|line| row(space, line)) {
            if let Some(of_one) = trials.get_mut(index) {
                of_one.push(measurement);
            }
        }
        let each = |field: fn(&Measurement) -> f64| {
            trials.iter().map(|of_one| of_one.iter().map(field).collect()).collect::<Vec<Vec<f64>>>()
        };
        let rounds = each(|trial| trial.rows_per_s);
        let medians =
            each(|trial| trial.p99_us).into_iter().map(median).zip(rounds.iter().cloned().map(median));
        let table = medians
            .map(|(p99_us, rows_per_s)| Some(Measurement { p99_us: p99_us?, rows_per_s: rows_per_s? }));
        Model { name, table: table.collect(), rounds }
    };
    FILES.into_iter().map(of).collect()
}

/// The lower one if there are two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// A line of `round,engine,lanes,threads,level,spinning,batch,p99_us,rows_per_s,runs`.
fn row(space: &Space, line: &str) -> Option<(usize, Measurement)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, engine, lanes, threads, level, spinning, batch, p99_us, rows_per_s, _] = fields.as_slice() else {
        return None;
    };
    let setup = Setup {
        engine: Engine::EACH.into_iter().find(|one| one.as_str() == *engine)?,
        lanes: lanes.parse().ok()?,
        threads: threads.parse().ok()?,
        level: Level::EACH.into_iter().find(|one| one.as_str() == *level)?,
        spinning: *spinning == "true",
    };
    let measurement = Measurement { p99_us: p99_us.parse().ok()?, rows_per_s: rows_per_s.parse().ok()? };
    Some((space.index(Configuration { setup, batch: batch.parse().ok()? })?, measurement))
}

impl Model {
    /// An objective that is a multiple of the fastest batch.
    pub fn objective(&self, multiple: f64) -> Objective {
        let fastest = self.table.iter().flatten().map(|one| one.p99_us).fold(f64::INFINITY, f64::min);
        Objective { slo_us: multiple * fastest }
    }

    pub fn surface(&self) -> Surface {
        self.table.iter().enumerate().filter_map(|(index, one)| Some((index, (*one)?))).collect()
    }

    /// Rounds in which every configuration was measured.
    pub fn round_count(&self) -> usize {
        self.rounds.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// How far the rows per second of a round are from the median, as shares, ascending.
    pub fn noise(&self) -> Vec<f64> {
        let each =
            self.rounds.iter().zip(&self.table).filter_map(|(rounds, median)| Some((rounds, (*median)?)));
        let mut sizes: Vec<f64> = each
            .flat_map(|(rounds, median)| rounds.iter().map(move |one| (one / median.rows_per_s).ln().abs()))
            .collect();
        sizes.sort_by(f64::total_cmp);
        sizes
    }
}
