// Sums over curves: smoothing, one axis for several runs, bands over seeds.

// Exponential moving average, corrected for its start; what was not measured stays out.
export function smoothed(values, weight) {
  if (!(weight > 0)) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// Curves {x, y} on one ascending axis: [x, y of the first, y of the second, ...] with null where one has no value.
export function aligned(curves) {
  const steps = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, index) => [step, index]));
  const columns = curves.map((curve) => {
    const column = new Array(steps.length).fill(null);
    curve.x.forEach((step, index) => { column[place.get(step)] = curve.y[index]; });
    return column;
  });
  return [steps, ...columns];
}

// Student's t, two-sided 95 %, by degrees of freedom.
const T95 = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];

// Mean of several columns with a band, "range" (least and greatest) or "t" (95 % interval of the mean). A step that only
// one of them has is left without a band. The interval of what is never negative ends at 0, that of shares at 1 too.
export function band(columns, kind, shares = false) {
  const size = columns.length ? columns[0].length : 0;
  const least = columns.every((column) => column.every((value) => !(value < 0))) ? 0 : -Infinity;
  const most = shares ? 1 : Infinity;
  const mean = new Array(size).fill(null);
  const low = new Array(size).fill(null);
  const high = new Array(size).fill(null);
  for (let index = 0; index < size; index++) {
    const values = columns.map((column) => column[index]).filter((value) => value !== null && value !== undefined);
    if (!values.length) continue;
    const middle = values.reduce((a, b) => a + b, 0) / values.length;
    mean[index] = middle;
    if (values.length < 2) continue;
    if (kind === "range") {
      low[index] = Math.min(...values);
      high[index] = Math.max(...values);
    } else {
      const spread = values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1);
      const reach = (T95[values.length - 2] || 1.96) * Math.sqrt(spread / values.length);
      low[index] = Math.max(least, middle - reach);
      high[index] = Math.min(most, middle + reach);
    }
  }
  return { mean, low, high };
}
