/* Numbers with units, as [number, unit]. */

export const count = n => Math.round(n).toLocaleString("en");

/* Seconds, three digits or so. */
export const time = s => {
  const ms = s * 1000;
  if (ms < 10) return [ms.toFixed(2), "ms"];
  if (ms < 100) return [ms.toFixed(1), "ms"];
  if (ms < 1000) return [ms.toFixed(0), "ms"];
  return s < 100 ? [s.toFixed(s < 10 ? 2 : 1), "s"] : [count(s), "s"];
};

export const rate = x => (x < 9.95 && Math.abs(x - Math.round(x)) > 0.05 ? x.toFixed(1) : count(x));
export const share = x => [x > 0 && x < 0.0005 ? "< 0.1" : (100 * x).toFixed(x > 0 && x < 0.0995 ? 1 : 0), "%"];

export const uptime = s => {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${Math.floor(s % 60)} s` : `${Math.floor(s)} s`;
};

export const words = ([number, unit]) => `${number} ${unit}`;
