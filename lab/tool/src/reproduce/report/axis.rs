//! Axes: map values to positions in a drawing, and choose ticks.

/// An axis from one value to another.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Its start and end in the drawing.
    start: f64,
    end: f64,
}

/// Approximate number of intervals between ticks.
const TICKS: f64 = 5.0;

impl Axis {
    /// Creates an axis that contains these values. A linear one begins at 0 if `from_zero`; a logarithmic one spans
    /// whole powers of ten, and omits values that are not positive.
    pub fn over(
        values: impl Iterator<Item = f64>,
        logarithmic: bool,
        from_zero: bool,
        (start, end): (f64, f64),
    ) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)) {
            (least, most) = (least.min(value), most.max(value));
        }
        let (mut from, mut to) = if least <= most { (least, most) } else { (1.0, 10.0) };
        if logarithmic {
            (from, to) = (10f64.powf(from.log10().floor()), 10f64.powf(to.log10().ceil()));
            if from >= to {
                to = from * 10.0;
            }
        } else {
            if from_zero {
                (from, to) = (from.min(0.0), to.max(0.0));
            }
            if from >= to {
                (from, to) = (from - 1.0, to + 1.0);
            }
            if from_zero {
                let step = step(to - from);
                (from, to) = ((from / step + 1e-9).floor() * step, (to / step - 1e-9).ceil() * step);
                // Turns -0 into 0.
                from += 0.0;
            }
        }
        Self { from, to, logarithmic, start, end }
    }

    /// Returns the position of a value in the drawing.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.from).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Returns the start of bars: at 0, or at the least value of a logarithmic axis.
    pub fn origin(&self) -> f64 {
        self.place(if self.logarithmic { self.from } else { 0.0 })
    }

    /// Returns the values of its ticks.
    pub fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let powers = (self.from.log10().round() as i32)..=(self.to.log10().round() as i32);
            let every = (powers.clone().count() / 7 + 1) as i32;
            let first = *powers.start();
            return powers
                .filter(|power| (power - first) % every == 0)
                .map(|power| 10f64.powi(power))
                .collect();
        }
        let step = step(self.to - self.from);
        let (first, last) = ((self.from / step - 1e-9).ceil() as i64, (self.to / step + 1e-9).floor() as i64);
        (first..=last).map(|tick| tick as f64 * step).collect()
    }
}

/// Returns the round distance of ticks over a span.
fn step(span: f64) -> f64 {
    let rough = span / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough * 0.999).unwrap_or(10.0);
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_round_and_cover_the_values() {
        let axis = Axis::over([3.0, 17.0].into_iter(), false, true, (0.0, 100.0));
        assert_eq!(axis.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!((axis.place(0.0), axis.place(10.0), axis.place(20.0)), (0.0, 50.0, 100.0));
        let axis = Axis::over([-20.0, 85.0].into_iter(), false, true, (100.0, 0.0));
        assert_eq!((axis.ticks()[0], *axis.ticks().last().unwrap()), (-50.0, 100.0));
        assert!((axis.origin() - 100.0 * 2.0 / 3.0).abs() < 1e-9);
        let axis = Axis::over([30.0, 8000.0, 0.0].into_iter(), true, false, (0.0, 3.0));
        assert_eq!(axis.ticks(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((axis.place(100.0) - 1.0).abs() < 1e-9);
        let empty = Axis::over([].into_iter(), false, true, (0.0, 1.0));
        assert!(empty.ticks().len() > 1);
        let one = Axis::over([7.0].into_iter(), false, false, (0.0, 1.0));
        assert!((one.place(7.0) - 0.5).abs() < 1e-9);
    }
}
