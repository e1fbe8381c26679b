// Keeps the page of a job up to date while it runs. Without it the page shows
// how the job was when it was loaded.
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
