//! The measured grids.

use tuning::{BATCHES, Configuration, Engine, Level, Measurement, Objective, Setup, Space, Surface};

/// A model of which all configurations were measured, and some twice.
pub struct Model {
    pub name: &'static str,
    /// By index of the space.
    pub table: Vec<Option<Measurement>>,
    /// Configurations that were measured again, with both results.
    pub repeats: Vec<(Measurement, Measurement)>,
}

const FILES: [(&str, &str, &str); 2] = [
    (
        "rapidocr_cls",
        include_str!("../../data/rapidocr_cls.csv"),
        include_str!("../../data/rapidocr_cls.repeat.csv"),
    ),
    (
        "mtcnn_rnet",
        include_str!("../../data/mtcnn_rnet.csv"),
        include_str!("../../data/mtcnn_rnet.repeat.csv"),
    ),
];

pub fn space() -> Space {
    Space::new(2, &BATCHES, &Engine::EACH)
}

/// All models.
pub fn models(space: &Space) -> Vec<Model> {
    let of = |(name, grid, again): (&'static str, &str, &str)| {
        let mut table = vec![None; space.len()];
        for (index, measurement) in rows(space, grid) {
            if let Some(slot) = table.get_mut(index) {
                *slot = Some(measurement);
            }
        }
        let repeats = rows(space, again).into_iter();
        let repeats = repeats.filter_map(|(index, two)| Some((table.get(index).copied().flatten()?, two)));
        Model { name, repeats: repeats.collect(), table }
    };
    FILES.into_iter().map(of).collect()
}

/// Lines of `engine,lanes,threads,level,spinning,batch,p99_us,rows_per_s,runs`.
fn rows(space: &Space, text: &str) -> Vec<(usize, Measurement)> {
    text.lines().skip(1).filter_map(|line| row(space, line)).collect()
}

fn row(space: &Space, line: &str) -> Option<(usize, Measurement)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [engine, lanes, threads, level, spinning, batch, p99_us, rows_per_s, _] = fields.as_slice() else {
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

    /// Sizes of the differences between two measurements of rows per second, ascending, as shares.
    pub fn noise(&self) -> Vec<f64> {
        let mut sizes: Vec<f64> =
            self.repeats.iter().map(|(one, two)| (two.rows_per_s / one.rows_per_s).ln().abs()).collect();
        sizes.sort_by(f64::total_cmp);
        sizes
    }
}
