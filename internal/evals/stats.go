package evals

import "math"

// z is the quantile of the normal distribution for an interval of 95 %.
const z = 1.959963984540054

// wilson returns the 95 % score interval of a rate of passed of all; 0 to 1 if all is 0.
func wilson(passed, all int) (low, high float64) {
	if all == 0 {
		return 0, 1
	}
	n := float64(all)
	p := float64(passed) / n
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return math.Max(0, middle-half), math.Min(1, middle+half)
}

// difference returns how much more of b pass than of a, with its 95 % interval by Newcombe's
// method, which is made of the score intervals of both.
func difference(a, b Sums) (diff, low, high float64) {
	if a.Decided == 0 || b.Decided == 0 {
		return 0, -1, 1
	}
	diff = b.Rate - a.Rate
	low = diff - math.Hypot(b.Rate-b.Low, a.High-a.Rate)
	high = diff + math.Hypot(b.High-b.Rate, a.Rate-a.Low)
	return diff, math.Max(-1, low), math.Min(1, high)
}
