//! Maximal free rectangles of a device: time across, units up.

/// An axis-parallel rectangle; `across` in parts of the period, `up` in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rectangle {
    pub left: u32,
    pub bottom: u32,
    pub across: u32,
    pub up: u32,
}

impl Rectangle {
    fn right(&self) -> u32 {
        self.left.saturating_add(self.across)
    }

    fn top(&self) -> u32 {
        self.bottom.saturating_add(self.up)
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right()
            && other.left < self.right()
            && self.bottom < other.top()
            && other.bottom < self.top()
    }

    fn holds(&self, other: &Self) -> bool {
        self.left <= other.left
            && self.right() >= other.right()
            && self.bottom <= other.bottom
            && self.top() >= other.top()
    }

    /// Returns the space around another rectangle: up to four rectangles, each as large as possible.
    fn around(&self, taken: &Self) -> Vec<Self> {
        let mut rest = Vec::new();
        if taken.left > self.left {
            rest.push(Self { across: taken.left.saturating_sub(self.left), ..*self });
        }
        if taken.right() < self.right() {
            rest.push(Self {
                left: taken.right(),
                across: self.right().saturating_sub(taken.right()),
                ..*self
            });
        }
        if taken.bottom > self.bottom {
            rest.push(Self { up: taken.bottom.saturating_sub(self.bottom), ..*self });
        }
        if taken.top() < self.top() {
            rest.push(Self { bottom: taken.top(), up: self.top().saturating_sub(taken.top()), ..*self });
        }
        rest
    }
}

/// The free space of one device, as the list of all maximal free rectangles.
#[derive(Clone, Debug)]
pub(super) struct Space {
    free: Vec<Rectangle>,
}

impl Space {
    pub fn new(across: u32, up: u32) -> Self {
        Self { free: vec![Rectangle { left: 0, bottom: 0, across, up }] }
    }

    /// Returns the place of a rectangle of that size: a corner of the free rectangle whose shorter remaining side is
    /// least.
    pub fn find(&self, across: u32, up: u32) -> Option<Rectangle> {
        let fitting = self.free.iter().filter(|free| free.across >= across && free.up >= up);
        let rest = |free: &Rectangle| {
            let (wide, high) = (free.across.saturating_sub(across), free.up.saturating_sub(up));
            (wide.min(high), wide.max(high), *free)
        };
        let free = fitting.min_by_key(|free| rest(free))?;
        Some(Rectangle { across, up, ..*free })
    }

    /// Removes a rectangle from the free space.
    pub fn take(&mut self, taken: Rectangle) {
        let mut next: Vec<Rectangle> = Vec::new();
        for free in &self.free {
            if free.meets(&taken) { next.extend(free.around(&taken)) } else { next.push(*free) }
        }
        next.sort_unstable();
        next.dedup();
        let inner =
            |rectangle: &Rectangle| next.iter().any(|other| other != rectangle && other.holds(rectangle));
        self.free = next.iter().copied().filter(|rectangle| !inner(rectangle)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time quota and SM share in percent, as on slide 18 of the authors' slides of FaST-GShare (ICPP 2023): two of
    /// BERT, two of RNNT, four of ResNet.
    const PODS: [(u32, u32); 8] =
        [(60, 50), (60, 50), (40, 24), (40, 24), (40, 12), (40, 12), (40, 12), (40, 12)];

    fn devices(pods: &[(u32, u32)]) -> Vec<Vec<Rectangle>> {
        let mut devices: Vec<(Space, Vec<Rectangle>)> = Vec::new();
        for (across, up) in pods {
            let place =
                devices.iter_mut().find_map(|(space, held)| Some((space.find(*across, *up)?, space, held)));
            if let Some((found, space, held)) = place {
                space.take(found);
                held.push(found);
                continue;
            }
            let mut space = Space::new(100, 100);
            let found = space.find(*across, *up).unwrap();
            space.take(found);
            devices.push((space, vec![found]));
        }
        devices.into_iter().map(|(_, held)| held).collect()
    }

    #[test]
    fn eight_pods_fit_on_one_device_as_rectangles() {
        let devices = devices(&PODS);
        assert_eq!(devices.len(), 1, "{devices:?}");
        let held = &devices[0];
        assert_eq!(held.iter().map(|pod| pod.across * pod.up).sum::<u32>(), 9_840);
        for (at, pod) in held.iter().enumerate() {
            assert!(pod.right() <= 100 && pod.top() <= 100, "{pod:?}");
            assert!(held.iter().skip(at + 1).all(|other| !pod.meets(other)), "{held:?}");
        }
    }

    #[test]
    fn sharing_time_only_needs_four_devices() {
        let in_time: Vec<_> = PODS.iter().map(|(across, _)| (*across, 100)).collect();
        assert_eq!(devices(&in_time).len(), 4);
    }

    #[test]
    fn free_rectangles_are_maximal_and_overlap() {
        let mut space = Space::new(10, 10);
        space.take(Rectangle { left: 0, bottom: 0, across: 4, up: 4 });
        let right = Rectangle { left: 4, bottom: 0, across: 6, up: 10 };
        let above = Rectangle { left: 0, bottom: 4, across: 10, up: 6 };
        assert_eq!(space.free, [above, right]);
        space.take(Rectangle { left: 3, bottom: 3, across: 4, up: 4 });
        assert!(space.find(4, 4).is_none_or(|found| found.left >= 6 || found.bottom >= 6), "{space:?}");
    }
}
