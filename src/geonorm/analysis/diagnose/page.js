// A link to a layer opens its section.
const openLinked = () => {
  const layer = location.hash && document.getElementById(location.hash.slice(1));
  if (layer && layer.tagName === "DETAILS") layer.open = true;
};
addEventListener("hashchange", openLinked);
openLinked();
