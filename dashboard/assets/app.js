// What a page gains with JavaScript: it refreshes itself, shows local times, and
// forgets what it has just said. Nothing here is needed.
"use strict";

(() => {
  const main = document.getElementById("main");

  // A notice is said once, not after each reload.
  const here = new URL(location.href);
  if (here.searchParams.has("done")) {
    here.searchParams.delete("done");
    history.replaceState(null, "", here);
  }

  // Times in the zone of the reader, on request of the pointer.
  const local = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (!Number.isNaN(moment.getTime())) {
        time.title = time.title.split("\n")[0] + "\n" + moment.toLocaleString() + " here";
      }
    }
  };
  local(document);

  if (!main || !main.dataset.refresh || !main.querySelector("[data-live]")) {
    return;
  }

  // The light can be clicked to hold the page still.
  const light = document.createElement("button");
  light.type = "button";
  light.className = "live";
  light.textContent = "Live";
  light.title = "Hold this page still, or let it refresh itself";
  light.setAttribute("aria-pressed", "true");
  light.addEventListener("click", () => {
    light.setAttribute("aria-pressed", String(!on()));
  });
  const on = () => light.getAttribute("aria-pressed") === "true";
  const place = () => {
    const head = main.querySelector(".head");
    if (head && !head.contains(light)) {
      const end = head.querySelector(".end");
      head.insertBefore(light, end);
    }
  };
  place();

  // Whoever reads, marks or types is not disturbed.
  const busy = () => {
    const focused = document.activeElement;
    const inside = focused && focused !== light && focused.closest("[data-live]");
    const selection = document.getSelection();
    return document.hidden || inside || (selection && !selection.isCollapsed);
  };

  let failures = 0;
  const refresh = async () => {
    if (on() && !busy()) {
      try {
        const answer = await fetch(location.href, { cache: "no-store" });
        if (!answer.ok) {
          throw new Error(answer.statusText);
        }
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        // What came while the answer was on its way counts too.
        if (!busy()) {
          const focused = document.activeElement === light;
          for (const part of main.querySelectorAll("[data-live]")) {
            const next = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
            if (next) {
              part.replaceChildren(...next.childNodes);
              local(part);
            }
          }
          place();
          if (focused) {
            light.focus();
          }
          main.dataset.refresh = fresh.getElementById("main").dataset.refresh || "";
        }
        failures = 0;
      } catch {
        failures++;
      }
      light.classList.toggle("stale", failures > 0);
      light.textContent = failures > 0 ? "Not reachable" : "Live";
    }
    const seconds = Number(main.dataset.refresh);
    if (seconds > 0) {
      setTimeout(refresh, Math.min(seconds * 2 ** failures, 60) * 1000);
    } else {
      light.remove();
    }
  };
  setTimeout(refresh, Number(main.dataset.refresh) * 1000);
})();
