// On a phone a table of five columns, or of words too long, is no grid: site.css shows each cell behind the name of its column.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table:has(thead th)")) {
    const names = [...table.querySelectorAll("thead th")].map((each) => each.textContent.trim());
    table.classList.toggle("named", names.length > 4 || table.offsetWidth > table.parentElement.clientWidth);
    let first = "";
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, column) => {
        cell.dataset.name = names[column];
        cell.classList.toggle("nothing", !cell.textContent.trim());
      });
      // A first cell without words means the one above.
      if (row.cells[0].textContent.trim()) first = row.cells[0].textContent.trim();
      else row.cells[0].dataset.name += ` ${first}`;
      row.cells[0].classList.remove("nothing");
    }
  }
});
