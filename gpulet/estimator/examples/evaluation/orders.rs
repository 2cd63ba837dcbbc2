//! How many cells must be measured until the plan is that of the whole grid, in different orders.

use estimator::{CHANGE_MIN, Choice, Estimate, Estimator, Objective, Place, Timing, plan};

use super::Failed;
use super::data::Measured;
use super::known::LeaveOut;
use super::random::mixed;

/// Objectives, in times of one row on the largest share.
const OBJECTIVES: [f64; 3] = [4.0, 8.0, 16.0];
/// Rate, as a part of the highest capacity of a share.
const RATE: f64 = 0.5;
/// Seeds of the random order.
pub const SEEDS: u64 = 5;
/// How far below the capacity of the best batch a batch may be that counts as the same plan.
pub const SAME: f64 = 0.02;

/// Smallest grid whose orders are compared: one cell of a smaller one is much more than a tenth of it.
pub const GRID_MIN: usize = 8;

/// What is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The best batch of each share.
    EachShare,
    /// The smallest share for a rate.
    Rate,
}

/// Which cell is measured next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Value,
    Random(u64),
    LeastKnown,
}

/// Parts of the grid that were measured, one for each model and objective (and seed).
#[derive(Default)]
pub struct Effort {
    /// In the order of value, until the plan was right and stayed so.
    pub value: Vec<f64>,
    pub random: Vec<f64>,
    pub least_known: Vec<f64>,
    /// What one cell is.
    pub one: Vec<f64>,
    /// In the order of value, when it stopped.
    pub stopped: Vec<f64>,
    /// How many of these plans were right.
    pub right: usize,
}

/// One question: a model, its objective, and the plan from all its times.
struct Question<'a> {
    model: &'a Measured,
    places: Vec<Place>,
    objective: Objective,
    truth: Vec<Choice>,
}

impl<'a> Question<'a> {
    fn new(model: &'a Measured, factor: f64, kind: Kind) -> Option<Self> {
        let solo = model.timings.iter().filter(|timing| timing.place.batch == 1);
        let solo = solo.max_by(|one, other| one.place.share.total_cmp(&other.place.share))?;
        let times = || model.timings.iter().map(|timing| (timing.place, timing.time_us));
        let mut objective = Objective { slo_us: factor * solo.time_us, rate_per_s: None, tail: 1.0 };
        if kind == Kind::Rate {
            let most = plan(&objective, times()).iter().map(|choice| choice.per_s).fold(0.0, f64::max);
            objective.rate_per_s = Some(RATE * most);
        }
        Some(Self { model, places: model.places(), objective, truth: plan(&objective, times()) })
    }

    /// Whether a plan has the same shares with the same batches, or batches that serve nearly as much and meet the objective too.
    fn is_right(&self, plan: &[Choice]) -> bool {
        let same = |(choice, best): (&Choice, &Choice)| {
            let Some(time_us) = self.model.time_us(choice.place) else { return false };
            let per_s = f64::from(choice.place.batch) * 1e6 / time_us;
            choice.place.share == best.place.share
                && 2.0 * time_us <= self.objective.slo_us
                && per_s >= (1.0 - SAME) * best.per_s
                && self.objective.rate_per_s.is_none_or(|rate| per_s >= rate.min(best.per_s))
        };
        plan.len() == self.truth.len() && plan.iter().zip(&self.truth).all(same)
    }

    /// Cells measured until the plan was right and stayed so, and, in the order of value, when it stopped and whether it was right then.
    fn run(&self, estimator: &Estimator, order: Order) -> (usize, Option<(usize, bool)>) {
        let mut estimate = estimator.estimate(Some(&self.model.network), &[]);
        let (mut right_since, mut stopped) = (None, None);
        let mut random = match order {
            Order::Random(seed) => seed,
            Order::Value | Order::LeastKnown => 0,
        };
        for measured in 0..=self.places.len() {
            let right = self.is_right(&estimate.plan(&self.objective, &self.places));
            right_since = if right { right_since.or(Some(measured)) } else { None };
            let next = match order {
                Order::Value => estimate.next(&self.objective, &self.places).map(|next| {
                    if next.change < CHANGE_MIN && stopped.is_none() {
                        stopped = Some((measured, right));
                    }
                    next.place
                }),
                Order::Random(_) => {
                    let open: Vec<Place> =
                        self.places.iter().copied().filter(|place| !estimate.is_measured(*place)).collect();
                    random = mixed(random);
                    open.get(usize::try_from(random % open.len().max(1) as u64).unwrap_or(0)).copied()
                }
                Order::LeastKnown => least_known(&estimate, &self.places),
            };
            let timing = next.and_then(|place| Some(Timing { place, time_us: self.model.time_us(place)? }));
            let Some(timing) = timing else { break };
            estimate.measure(timing);
        }
        let all = self.places.len();
        if order == Order::Value {
            stopped = stopped.or(Some((all, true)));
        }
        (right_since.unwrap_or(all), stopped)
    }
}

fn least_known(estimate: &Estimate<'_>, places: &[Place]) -> Option<Place> {
    let width = |place: &Place| {
        let predicted = estimate.at(*place);
        predicted.high_us / predicted.low_us
    };
    let open = places.iter().copied().filter(|place| !estimate.is_measured(*place));
    open.max_by(|one, other| width(one).total_cmp(&width(other)))
}

/// All models and objectives of a data set.
pub fn study(known: &LeaveOut<'_>, kind: Kind) -> Result<Effort, Failed> {
    let models: Vec<&Measured> = known.all.iter().filter(|model| model.timings.len() >= GRID_MIN).collect();
    let estimators = models.iter().map(|model| known.estimator(model)).collect::<Result<Vec<_>, _>>()?;
    let questions = models.iter().zip(estimators).flat_map(|(model, estimator)| {
        OBJECTIVES
            .into_iter()
            .filter_map(move |factor| Some((Question::new(model, factor, kind)?, estimator)))
    });
    let questions: Vec<(Question<'_>, &Estimator)> = questions.collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let answers = sim::abreast(threads, &questions, |(question, estimator)| {
        let of = |order| question.run(estimator, order).0;
        let random = (1..=SEEDS).map(|seed| of(Order::Random(seed))).collect();
        Ok((question.run(estimator, Order::Value), random, of(Order::LeastKnown)))
    })?;
    let mut effort = Effort::default();
    for ((question, _), ((until, stopped), random, least_known)) in questions.iter().zip(answers) {
        let random: Vec<usize> = random;
        let part = |count: usize| count as f64 / question.places.len() as f64;
        effort.value.push(part(until));
        effort.one.push(part(1));
        if let Some((count, right)) = stopped {
            effort.stopped.push(part(count));
            effort.right += usize::from(right);
        }
        effort.random.extend(random.into_iter().map(part));
        effort.least_known.push(part(least_known));
    }
    Ok(effort)
}
