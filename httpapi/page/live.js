// Keeps the page of a job or of a task up to date while it runs. Without it the
// page shows how things were when it was loaded.
"use strict";

const job = document.querySelector("[data-events]");
if (job) {
	const source = new EventSource(job.dataset.events);
	const put = (row, name, text) => {
		const cell = row.querySelector(`[data-field="${name}"]`);
		if (cell && cell.textContent !== text) {
			cell.textContent = text;
		}
	};
	const show = (event) => {
		const told = JSON.parse(event.data);
		put(document, "job", told.job.status);
		for (const device of told.devices) {
			const row = document.getElementById(`device-${device.device_id}`);
			if (!row) {
				continue;
			}
			put(row, "status", device.status);
			put(row, "phase", device.phase || "");
			put(row, "failure", device.failure ? [device.failure.code, device.failure.message, device.failure.hint].filter(Boolean).join(": ") : "");
			const bar = row.querySelector("progress");
			if (bar) {
				bar.value = device.progress;
			}
		}
	};
	source.addEventListener("snapshot", show);
	source.addEventListener("change", show);
	source.addEventListener("end", (event) => {
		show(event);
		source.close();
		location.reload();
	});
}

// settle makes one element as another is. What is alike stays, and with it the
// focus and what was opened or scrolled.
const settle = (from, to) => {
	if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.childNodes.length !== to.childNodes.length) {
		from.replaceWith(to);
		return;
	}
	if (from.nodeType !== Node.ELEMENT_NODE) {
		if (from.nodeValue !== to.nodeValue) {
			from.nodeValue = to.nodeValue;
		}
		return;
	}
	for (const { name } of [...from.attributes]) {
		if (!to.hasAttribute(name)) {
			from.removeAttribute(name);
		}
	}
	for (const { name, value } of to.attributes) {
		if (from.getAttribute(name) !== value) {
			from.setAttribute(name, value);
		}
	}
	const pairs = [...from.childNodes].map((child, i) => [child, to.childNodes[i]]);
	for (const [before, after] of pairs) {
		settle(before, after);
	}
};

const task = document.querySelector("[data-parts]");
if (task) {
	const source = new EventSource(task.dataset.parts);
	const show = (event) => {
		for (const [id, text] of Object.entries(JSON.parse(event.data).parts)) {
			const shown = document.getElementById(id);
			const fresh = document.createElement("template");
			fresh.innerHTML = text;
			if (shown && fresh.content.firstElementChild) {
				settle(shown, fresh.content.firstElementChild);
			}
		}
	};
	source.addEventListener("snapshot", show);
	source.addEventListener("change", show);
	source.addEventListener("end", (event) => {
		show(event);
		source.close();
		for (const form of document.querySelectorAll("[data-open]")) {
			form.remove();
		}
	});
	// It ended while nobody listened, or there is no place to listen: look again,
	// unless somebody is writing.
	source.addEventListener("error", () => {
		const writes = [...document.querySelectorAll("[data-open] input[name=reason]")].some((field) => field.value);
		if (source.readyState === EventSource.CLOSED && !writes) {
			setTimeout(() => location.reload(), 10000);
		}
	});
}
