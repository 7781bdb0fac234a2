// Applies the chosen theme before the page is painted.
const theme = localStorage.getItem("waybill-theme");
if (theme) document.documentElement.dataset.theme = theme;
