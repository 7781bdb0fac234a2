//! A row of numbers as a line of small bars.

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns at most `width` bars for the numbers, the highest of which is the highest bar. Where there are more numbers
/// than bars, the highest of each group is drawn.
pub(crate) fn sparkline(numbers: &[f64], width: usize) -> String {
    let highest = numbers.iter().copied().fold(0.0, f64::max);
    let group = numbers.len().div_ceil(width.max(1)).max(1);
    let bar = |group: &[f64]| {
        let number = group.iter().copied().fold(0.0, f64::max);
        match number > 0.0 {
            true => BARS[((number / highest * 7.0).ceil() as usize).min(7)],
            false => BARS[0],
        }
    };
    numbers.chunks(group).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_number_is_the_highest_bar() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0], 10), "▁▂▅█");
        assert_eq!(sparkline(&[0.0, 0.0], 10), "▁▁");
        assert_eq!(sparkline(&[0.0, 8.0, 1.0, 1.0], 2), "█▂");
        assert_eq!(sparkline(&[], 10), "");
    }
}
