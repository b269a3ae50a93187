// Light or dark as Airflow's own pages are, which keep the choice where this page can read it.

const dark = matchMedia("(prefers-color-scheme: dark)");

function choose() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // No storage: as the system has it.
  }
  const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
}

export function followTheme() {
  choose();
  dark.addEventListener("change", choose);
  addEventListener("storage", choose);
}
