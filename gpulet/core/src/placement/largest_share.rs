//! Plans for as much of the load as the devices serve.

/// Bisection steps in the search for the largest load with a plan.
const HALVINGS: u32 = 8;

/// A plan for the whole load, or else for the largest share of it that has one. `attempt` plans for a share from 0 to 1.
/// Returns the share too.
///
/// # Errors
/// That of a plan without load, if even that fails.
pub fn largest_share<P, E>(attempt: impl Fn(f64) -> Result<P, E>) -> Result<(P, f64), E> {
    if let Ok(planned) = attempt(1.0) {
        return Ok((planned, 1.0));
    }
    let mut best = (attempt(0.0)?, 0.0);
    let mut high = 1.0;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(best.1, high);
        match attempt(middle) {
            Ok(planned) => best = (planned, middle),
            Err(_) => high = middle,
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_as_large_as_the_devices_allow() {
        let up_to =
            |most: f64| largest_share(move |share| if share <= most { Ok(share) } else { Err(share) });
        assert_eq!(up_to(1.0), Ok((1.0, 1.0)));
        let (planned, share) = up_to(0.7).unwrap();
        assert!(planned == share && (0.69..=0.7).contains(&share), "{share}");
        assert_eq!(up_to(-1.0), Err(0.0));
    }
}
