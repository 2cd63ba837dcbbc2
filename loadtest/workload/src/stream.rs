//! The arrivals of one model, one after the other.
//!
//! HOT PATH: no allocation. Memory does not grow with the number of arrivals.

use std::f64::consts::TAU;
use std::sync::Arc;

use rand::RngExt as _;

use crate::draws::{Gamma, exponential};
use crate::process::{Listing, Process, State, Steps};
use crate::seeds::{Generator, Purpose, generator};

/// Times at which requests arrive, ascending, below a horizon.
#[derive(Debug)]
pub(crate) struct Stream {
    clock: Clock,
    horizon: u64,
    generator: Generator,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Silent,
    /// Gaps of mean 1, in a time that runs as fast as the rate.
    Paced {
        gap: Gap,
        pace: Pace,
        first: bool,
    },
    /// Evenly spaced, `gap` nanoseconds apart.
    Even {
        gap: f64,
        first: bool,
    },
    /// Candidates at the peak rate, each kept with the share of the peak that the rate has then.
    Thinned {
        peak: f64,
        low: f64,
        period: u64,
    },
    /// Given times.
    Listed {
        listing: Arc<Listing>,
        speed: f64,
        next: usize,
        lap: u64,
    },
}

/// A distribution of gaps with mean 1.
#[derive(Debug)]
enum Gap {
    Exponential,
    /// The gap, and the gap around a random moment, which is longer.
    Gamma {
        gap: Gamma,
        around: Gamma,
        scale: f64,
    },
}

/// The rate as it goes.
#[derive(Debug)]
enum Pace {
    Constant(f64),
    Flash { rate: f64, at: u64, end: u64, factor: f64 },
    Stepped { steps: Arc<Steps>, scale: f64 },
    Modulated { states: Arc<[State]>, scale: f64, state: usize, until: u64 },
}

/// Whole nanoseconds and the part of the next one, so that nothing is lost over days.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    at: u64,
    part: f64,
}

impl Clock {
    fn advance(&mut self, ns: f64) {
        let total = self.part + ns;
        // The conversion saturates, beyond any horizon.
        let whole = total as u64;
        self.at = self.at.saturating_add(whole);
        self.part = if total < u64::MAX as f64 { total - whole as f64 } else { 0.0 };
    }
}

impl Gap {
    fn new(cv: Option<f64>) -> Self {
        match cv {
            Some(cv) => {
                let (shape, scale) = (1.0 / (cv * cv), cv * cv);
                Self::Gamma { gap: Gamma::new(shape), around: Gamma::new(shape + 1.0), scale }
            }
            None => Self::Exponential,
        }
    }

    fn draw(&self, generator: &mut Generator) -> f64 {
        match self {
            Self::Exponential => exponential(generator),
            Self::Gamma { gap, scale, .. } => scale * gap.draw(generator),
        }
    }

    /// From a random moment to the next arrival: a random part of the gap around it, and a gap is met the more
    /// often the longer it is (for a gamma distribution: the shape plus one).
    fn draw_first(&self, generator: &mut Generator) -> f64 {
        match self {
            Self::Exponential => exponential(generator),
            Self::Gamma { around, scale, .. } => generator.random::<f64>() * scale * around.draw(generator),
        }
    }
}

impl Pace {
    fn modulated(states: &Arc<[State]>, scale: f64, generator: &mut Generator) -> Self {
        let total: f64 = states.iter().map(|state| state.stay).sum();
        let point = generator.random::<f64>() * total;
        let mut sum = 0.0;
        let found = states.iter().position(|state| {
            sum += state.stay;
            point < sum
        });
        let state = found.unwrap_or(0);
        let until = stay(states, state, generator);
        Self::Modulated { states: Arc::clone(states), scale, state, until }
    }

    /// Rate at a time and the time until which it holds, later than that time.
    fn segment(&mut self, now: u64, generator: &mut Generator) -> (f64, u64) {
        match self {
            Self::Constant(rate) => (*rate, u64::MAX),
            Self::Flash { rate, at, .. } if now < *at => (*rate, *at),
            Self::Flash { rate, end, factor, .. } if now < *end => (*rate * *factor, *end),
            Self::Flash { rate, .. } => (*rate, u64::MAX),
            Self::Stepped { steps, scale } => {
                let (rate, end) = steps.segment(now);
                (rate * *scale, end)
            }
            Self::Modulated { states, scale, state, until } => {
                while *until <= now {
                    *state = (*state + 1) % states.len().max(1);
                    *until = until.saturating_add(stay(states, *state, generator));
                }
                (states.get(*state).map_or(0.0, |state| state.rate * *scale), *until)
            }
        }
    }
}

/// How long a state holds this time, in nanoseconds.
fn stay(states: &[State], state: usize, generator: &mut Generator) -> u64 {
    let mean = states.get(state).map_or(1.0, |state| state.stay);
    ((exponential(generator) * mean) as u64).max(1)
}

impl Stream {
    /// The arrivals of the model of that name.
    pub(crate) fn new(process: &Process, seed: u64, name: &str, horizon: u64) -> Self {
        let mut generator = generator(seed, Purpose::Arrivals, name);
        let paced = |cv, pace| Kind::Paced { gap: Gap::new(cv), pace, first: true };
        let kind = match process {
            Process::Silent => Kind::Silent,
            Process::Poisson { rate } => paced(None, Pace::Constant(*rate)),
            Process::Gamma { rate, cv } => paced(Some(*cv), Pace::Constant(*rate)),
            Process::Uniform { rate } => Kind::Even { gap: 1.0 / rate, first: true },
            Process::Modulated { states, scale } => {
                paced(None, Pace::modulated(states, *scale, &mut generator))
            }
            Process::Diurnal { peak, low, period } => {
                Kind::Thinned { peak: *peak, low: *low, period: *period }
            }
            Process::Flash { rate, at, lasts, factor } => {
                let end = at.saturating_add(*lasts);
                paced(None, Pace::Flash { rate: *rate, at: *at, end, factor: *factor })
            }
            Process::Stepped { steps, cv, scale } => {
                paced(*cv, Pace::Stepped { steps: Arc::clone(steps), scale: *scale })
            }
            Process::Listed { listing, speed } => {
                Kind::Listed { listing: Arc::clone(listing), speed: *speed, next: 0, lap: 0 }
            }
        };
        Self { clock: Clock::default(), horizon, generator, kind }
    }

    /// The same arrivals, as if a request had arrived at the start.
    pub(crate) fn after_arrival(mut self) -> Self {
        if let Kind::Paced { first, .. } = &mut self.kind {
            *first = false;
        }
        self
    }

    /// When the next request arrives; none from the horizon on.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let Self { clock, horizon, generator, kind } = self;
        match kind {
            Kind::Paced { gap, pace, first } => {
                let need =
                    if std::mem::take(first) { gap.draw_first(generator) } else { gap.draw(generator) };
                pass(clock, need, pace, generator, *horizon);
            }
            Kind::Even { gap, first } => {
                let phase = if std::mem::take(first) { generator.random::<f64>() } else { 1.0 };
                clock.advance(*gap * phase);
            }
            Kind::Thinned { peak, low, period } => thin(clock, *peak, *low, *period, generator, *horizon),
            Kind::Silent => clock.at = u64::MAX,
            Kind::Listed { listing, speed, next, lap } => clock.at = replay(listing, *speed, next, lap),
        }
        (clock.at < *horizon).then_some(clock.at)
    }
}

/// Moves the clock until `need` requests are due, or to the horizon.
fn pass(clock: &mut Clock, mut need: f64, pace: &mut Pace, generator: &mut Generator, horizon: u64) {
    while clock.at < horizon {
        let (rate, end) = pace.segment(clock.at, generator);
        let available = ((end - clock.at) as f64 - clock.part) * rate;
        if need < available {
            return clock.advance(need / rate);
        }
        need -= available.max(0.0);
        *clock = Clock { at: end, part: 0.0 };
    }
}

fn thin(clock: &mut Clock, peak: f64, low: f64, period: u64, generator: &mut Generator, horizon: u64) {
    while clock.at < horizon {
        clock.advance(exponential(generator) / peak);
        let phase = (clock.at % period) as f64 / period as f64;
        let share = low + (1.0 - low) * (1.0 - libm::cos(TAU * phase)) / 2.0;
        if generator.random::<f64>() < share {
            return;
        }
    }
}

fn replay(listing: &Listing, speed: f64, next: &mut usize, lap: &mut u64) -> u64 {
    if *next >= listing.times.len() {
        if !listing.repeat {
            return u64::MAX;
        }
        (*next, *lap) = (0, lap.saturating_add(1));
    }
    let Some(time) = listing.times.get(*next) else { return u64::MAX };
    *next += 1;
    if speed == 1.0 {
        return lap.saturating_mul(listing.period).saturating_add(*time);
    }
    // Laps of a trace played fast may count more nanoseconds than whole numbers hold.
    ((*lap as f64 * listing.period as f64 + *time as f64) / speed) as u64
}
